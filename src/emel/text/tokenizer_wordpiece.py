"""WordPiece (BERT): text is normalised and cut into words, and each is the longest pieces it consists of.

Normalising and cutting are those of BERT's own tokenizer (Devlin et al. 2018; `BertNormalizer` and `BertPreTokenizer`
of https://github.com/huggingface/tokenizers), in which control characters are dropped, accents too, and white space,
punctuation and Chinese characters end words. So text does not come back as it was.
In GGUF vocabularies pieces that begin a word have U+2581 in front, and "##" of the others is gone.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from emel._native import vocab as native
from emel.text.pretokenizers import word_ends
from emel.text.token_trie import TokenTrie

if TYPE_CHECKING:
    from emel.text.vocabulary import Vocabulary

_WORD_MARK = "\u2581"
_MAX_CHARACTERS = 100  # a longer word is unknown (max_input_chars_per_word)
_UNKNOWN = "\0"  # begins no token: normalising drops it
_PIECES = (0, native.TOKEN_NORMAL, native.TOKEN_USER_DEFINED, native.TOKEN_UNUSED)
# The blocks of CJK ideographs, with the gap of the original.
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPieceEncoder:
    """Immutable and safe to use from many threads. unknown: the token of each word that has no pieces."""

    def __init__(
        self, vocabulary: Vocabulary, *, lowercase: bool = True, strip_accents: bool = True, unknown: int | None = None
    ) -> None:
        self._unknown = unknown
        self._strip_accents = strip_accents
        self._separated = _Separated(lowercase=lowercase, strip_accents=strip_accents)
        self._pieces = TokenTrie(vocabulary, _PIECES)

    def encode(self, text: str, *, is_first: bool) -> list[int]:
        """Ids of an ordinary text; is_first makes no difference to WordPiece."""
        del is_first
        words = [_WORD_MARK + (_UNKNOWN if _is_unknown(each) else each) for each in self.words_of(text)]
        return self._pieces.encode_words("".join(words).encode(), word_ends(words), self._unknown)

    def words_of(self, text: str) -> list[str]:
        """The words of a text, normalised."""
        if self._strip_accents:
            text = unicodedata.normalize("NFD", text)
        return text.translate(self._separated).split()


class _Separated(dict[int, str]):
    """For str.translate: what each code point becomes, with spaces around what is a word alone. Filled as needed."""

    def __init__(self, *, lowercase: bool, strip_accents: bool) -> None:
        super().__init__()
        self._lowercase = lowercase
        self._strip_accents = strip_accents

    def __missing__(self, code_point: int) -> str:
        self[code_point] = result = self._result(chr(code_point))
        return result

    def _result(self, character: str) -> str:
        category = unicodedata.category(character)
        if (character.isspace() and category != "Cc") or character in "\t\n\r":
            return " "
        is_dropped = category in ("Cc", "Cf", "Co", "Cs") or character == "\ufffd"
        if is_dropped or (self._strip_accents and category == "Mn"):
            return ""
        lowered = character.lower() if self._lowercase else character
        is_alone = category[0] == "P" or (character.isascii() and category[0] == "S") or _is_ideograph(ord(character))
        return f" {lowered} " if is_alone else lowered


def _is_unknown(word: str) -> bool:
    """Too long, or with the mark in it, which would begin another word."""
    return len(word) > _MAX_CHARACTERS or _WORD_MARK in word


def _is_ideograph(code_point: int) -> bool:
    return any(first <= code_point <= last for first, last in _IDEOGRAPHS)
