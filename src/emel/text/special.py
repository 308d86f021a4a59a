"""Special tokens: which ids they are, and cutting text at them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from emel._native import vocab as native

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator, Mapping

    from emel.gguf.metadata import Metadata
    from emel.text.vocabulary import Vocabulary

# Files often name only one of the tokens that end a turn; these texts end it in the models that have them (model cards,
# and the list llama.cpp keeps for the same reason: `special_eog_ids` in src/llama-vocab.cpp).
_END_TEXTS = (
    "<|eot_id|>",  # Llama 3
    "<|eom_id|>",
    "<|im_end|>",  # ChatML
    "<|end|>",  # Phi 3
    "<|return|>",  # gpt-oss
    "<|call|>",
    "<end_of_turn>",  # Gemma
    "<|endoftext|>",  # GPT-2
    "<|end_of_text|>",
    "<EOT>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",  # noqa: RUF001 - DeepSeek writes it with these bars
)
# In gpt-oss <|end|> only separates channels: with both of these in the vocabulary it does not end a turn.
_HARMONY = ("<|return|>", "<|call|>")
_END_KEYS = ("eos", "eot", "eom")


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """Ids of the special tokens a file names; None where it names none."""

    bos: int | None = None
    eos: int | None = None
    sep: int | None = None
    unknown: int | None = None
    """For what has no token. Never one that begins or ends something: text must not turn into those."""
    ends: frozenset[int] = frozenset()


class SpecialPattern:
    """Cuts text at a set of tokens: leftmost first, the longest at each place; linear in the text."""

    def __init__(self, vocabulary: Vocabulary, ids: Iterable[int]) -> None:
        self._ids_by_text: dict[str, int] = {}
        for token_id in sorted(ids):
            text = vocabulary.decode((token_id,)).decode("utf-8", "surrogateescape")
            if text:
                self._ids_by_text.setdefault(text, token_id)

    def texts_of(self, ids: Iterable[int]) -> list[str]:
        """The texts of those of the ids that are in the set."""
        wanted = frozenset(ids)
        return [text for text, token_id in self._ids_by_text.items() if token_id in wanted]

    def partition(self, text: str) -> Iterator[tuple[str, int | None]]:
        """Pairs of an ordinary fragment (maybe empty) and the special token behind it (None at the end)."""
        end = 0
        if self._ids_by_text:
            for match in self._pattern.finditer(text):
                yield text[end : match.start()], self._ids_by_text[match[0]]
                end = match.end()
        yield text[end:], None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        import re  # noqa: PLC0415 - already imported by anyone who gets here; kept next to its use

        longest_first = sorted(self._ids_by_text, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)))


def find_special_ids(metadata: Metadata, vocabulary: Vocabulary, texts: Mapping[str, str] | None = None) -> SpecialIds:
    """The special ids that `tokenizer.ggml.*_token_id` and well-known texts give; ValueError for ids out of range.

    texts: what a token's text is in this family, by the key that names its id ("bos", "eos", "sep"), for files that
    leave the key out.
    """
    named = {key: _id_of(metadata, key, vocabulary.n_tokens) for key in ("bos", "sep", *_END_KEYS)}
    for key, text in (texts or {}).items():
        if named[key] is None:
            named[key] = vocabulary.find(text)
    found = {named[key] for key in _END_KEYS} | {vocabulary.find(text) for text in _END_TEXTS}
    if all(vocabulary.find(text) is not None for text in _HARMONY):
        found.discard(vocabulary.find("<|end|>"))
    ends = frozenset(each for each in found if each is not None)
    taken = {named["bos"], named["sep"], *ends}
    unknown = metadata.get_int("tokenizer.ggml.unknown_token_id", None)
    candidates = [] if unknown is None or not 0 <= unknown < vocabulary.n_tokens else [unknown]
    candidates += vocabulary.ids_of_types(native.TOKEN_UNKNOWN)
    return SpecialIds(
        bos=named["bos"],
        eos=named["eos"],
        sep=named["sep"],
        unknown=next((each for each in candidates if each not in taken), None),
        ends=ends,
    )


def _id_of(metadata: Metadata, name: str, n_tokens: int) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    token_id = metadata.get_int(key, None)
    if token_id is not None and not 0 <= token_id < n_tokens:
        raise ValueError(f"{key} is {token_id}: allowed are 0 to {n_tokens - 1}")
    return token_id
