"""The examples of docs/concepts/machines.md run as they stand and print what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "machines.md"


def test_examples_of_the_page_print_what_it_says() -> None:
    blocks = re.findall(r"^```(python|text)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = io.StringIO()
    n_compared = 0
    for kind, text in blocks:
        if kind == "python":
            with contextlib.redirect_stdout(printed):
                exec(compile(text, str(PAGE), "exec", dont_inherit=True), namespace)
            continue
        assert printed.getvalue() == text
        printed = io.StringIO()
        n_compared += 1
    assert n_compared == 5
    assert printed.getvalue() == "", "the page shows no output for its last block"
