"""How text is cut into words before merging, by the name in `tokenizer.ggml.pre`.

A pre-tokenizer is a list of patterns applied in turn: each cuts every piece the one before left, into its matches and
what lies between them. Patterns come from the models' own tokenizer.json; llama.cpp's table of the same
(`llm_tokenizer_bpe` in src/llama-vocab.cpp, https://github.com/ggml-org/llama.cpp) gives the names.

Every pattern here is linear: a match consumes all it looked at but for at most one character of white space, and the
regex module keeps its backtracking on the heap.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable

    import regex

# GPT-2's encoder.py (https://github.com/openai/gpt-2/blob/master/src/encoder.py), also ByteLevel of tokenizers.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Meta-Llama-3 tokenizer.json: case-insensitive contractions, up to three digits, line breaks kept with what precedes.
_LLAMA3 = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Qwen2 tokenizer.json: as Llama 3, with every digit alone.
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# SmolLM2 tokenizer.json: Digits(individual_digits) and then ByteLevel, here as one pattern: where a digit is cut off,
# the piece before it ends, and white space that ends a piece stays whole.
_SMOLLM = r"\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"


@dataclass(frozen=True)
class PreTokenizer:
    """Patterns, applied in turn, and what else goes by the same name."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False  # a word that is a token is that token (tokenizer.json: model.ignore_merges)
    add_bos: bool = False  # where the file does not say

    @cached_property
    def _compiled(self) -> tuple[regex.Pattern[str], ...]:
        import regex  # noqa: PLC0415 - 20 ms that only tokenizing needs

        return tuple(regex.compile(each) for each in self.patterns)

    def split(self, text: str) -> list[str]:
        """The words of a text, in order and without loss."""
        first, *others = self._compiled
        pieces = _cut(first, text)
        for pattern in others:
            pieces = [word for piece in pieces for word in _cut(pattern, piece)]
        return pieces


# What llama.cpp uses when a file names no pre-tokenizer: punctuation, GPT-2, runs of digits, then three by three.
_DEFAULT = PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))
_LLAMA_BPE = PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True)

# One line for each way to split; the names after the first are models that split the same way (llama.cpp's table).
_BY_NAMES = {
    ("default",): _DEFAULT,
    ("gpt-2", "mpt", "olmo", "phi-2"): PreTokenizer((_GPT2,)),
    ("llama-bpe", "llama-v3", "llama3"): _LLAMA_BPE,
    ("smaug-bpe", "dbrx"): PreTokenizer((_LLAMA3,)),
    ("qwen2", "deepseek-r1-qwen", "stablelm2"): PreTokenizer((_QWEN2,)),
    ("smollm", "command-r", "refact", "starcoder"): PreTokenizer((_SMOLLM,)),
}
PRE_TOKENIZERS = {name: pre for names, pre in _BY_NAMES.items() for name in names}


def pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer of that name; ValueError naming it and the known ones."""
    found = PRE_TOKENIZERS.get(name)
    if found is None:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise ValueError(f"unknown pre-tokenizer {name!r} (tokenizer.ggml.pre); known: {known}")
    return found


def word_ends(words: Iterable[str]) -> array[int]:
    """Byte offsets of the ends of words in their joined encoding."""
    from array import array  # noqa: PLC0415

    return array("Q", accumulate(len(word.encode("utf-8", "surrogateescape")) for word in words))


def _cut(pattern: regex.Pattern[str], text: str) -> list[str]:
    words: list[str] = pattern.findall(text)
    if sum(map(len, words)) == len(text):  # the usual case, and twice as fast: nothing lies between the matches
        return words
    words = []
    end = 0
    for match in pattern.finditer(text):
        start = match.start()
        if start > end:
            words.append(text[end:start])
        end = match.end()
        words.append(match[0])
    if end < len(text):
        words.append(text[end:])
    return words
