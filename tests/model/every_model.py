"""All tiny models that write text, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.tiny_experts import EXPERT_MODELS, HYBRID_MODELS
from model.tiny_models import TINY_MODELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from model.tiny_models import TinyModel

EVERY_MODEL: dict[str, Callable[[], TinyModel]] = TINY_MODELS | EXPERT_MODELS | HYBRID_MODELS
