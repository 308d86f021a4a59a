"""What the memory package raises."""

from __future__ import annotations


class CacheError(ValueError):
    """An operation on a sequence or block that is not in the state it needs."""


class CacheFullError(CacheError):
    """The cache, or a sequence's context, has no room; nothing was changed."""


class SavedSequenceError(CacheError):
    """A saved sequence that cannot be restored: not one, damaged, or of another model, numerics version or layout."""
