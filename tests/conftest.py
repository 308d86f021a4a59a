"""Fixtures for all tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

# The reference's matrices are small: threads of NumPy's BLAS cost eight times what they save. Before NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Jobs in the background of a shell ignore Ctrl-C, so do their children: tests that interrupt would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The default model: $EMEL_TEST_MODEL, else fetched once into the user's cache (other workers wait for it)."""
    if given := os.environ.get("EMEL_TEST_MODEL"):
        return Path(given)
    from emel.engine.models import DEFAULT_MODEL, resolve_model

    return resolve_model(DEFAULT_MODEL)
