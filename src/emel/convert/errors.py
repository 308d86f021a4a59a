"""What keeps a file from being written."""

from __future__ import annotations

from emel.errors import EmelError


class ConvertError(EmelError, ValueError):
    """A model cannot be quantised or converted; the text names what was seen and what is allowed."""
