"""Imports that a start needs later, done while packing weights leaves the interpreter to other threads."""

from __future__ import annotations

import importlib
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FOR_TEXT = ("regex",)
FOR_CHAT = ("jinja2.ext", "jinja2.sandbox", "emel.text.template_sandbox")


@contextmanager
def importing(*modules: str) -> Iterator[None]:
    """Imports modules in a thread of its own while the block runs; both are over when it is left.

    One that cannot be imported says so where it is used.
    """
    thread = threading.Thread(target=_import_all, args=(modules,), name="emel-import")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _import_all(modules: tuple[str, ...]) -> None:
    with suppress(Exception):
        for name in modules:
            importlib.import_module(name)
