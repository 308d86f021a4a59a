"""Texts of the speculation suite: what repeats itself, what is written again with changes, and what does neither."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.errors import RequestError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel import Model


@dataclass(frozen=True, slots=True, eq=False)
class SpeculationWorkload:
    """A prompt, raw or a user's message, and how it is answered. `bar`: the least ratio that is wanted, if any."""

    name: str
    prompt: str
    is_chat: bool
    options: Mapping[str, float]
    bar: float | None = None

    def prompt_ids(self, model: Model) -> list[int]:
        """Token ids; of a message by the chat template, if the model has one."""
        if self.is_chat:
            try:
                return model.encode_chat([{"role": "user", "content": self.prompt}])
            except RequestError:
                pass
        return model.tokenize(self.prompt)


_CODE = '''class Circle:
    """A circle by its radius."""

    def __init__(self, radius):
        self.radius = radius

    def area(self):
        return 3.14159 * self.radius ** 2

    def perimeter(self):
        return 2 * 3.14159 * self.radius


class Square:
    """A square by its side."""

    def __init__(self, side):
        self.side = side

    def area(self):
        return self.side ** 2

    def perimeter(self):
        return 4 * self.side
'''
_GREEDY = {"temperature": 0.0}
_SEEDED = {"temperature": 0.7, "seed": 1}

WORKLOADS = (
    SpeculationWorkload(
        "repetitive text", "The quick brown fox jumps over the lazy dog. " * 16, is_chat=False, options=_GREEDY, bar=1.8
    ),
    SpeculationWorkload(
        "code editing",
        f"Write this program again with the number 3.14159 replaced by PI, and nothing else changed:\n\n{_CODE}",
        is_chat=True,
        options=_GREEDY,
    ),
    SpeculationWorkload(
        "chat, greedy", "Why is the sky blue? Explain it step by step.", is_chat=True, options=_GREEDY, bar=0.97
    ),
    SpeculationWorkload(
        "chat, sampled", "Tell me about a day at the sea with two friends.", is_chat=True, options=_SEEDED, bar=0.97
    ),
)
