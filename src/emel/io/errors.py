"""What a byte source reports when a file cannot be had."""

from __future__ import annotations


class SourceError(OSError):
    """A file cannot be opened, is not a regular file, or is no longer what it was; one line that says what to do."""
