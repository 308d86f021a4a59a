"""Text -> token ids -> bytes, for byte-level BPE vocabularies.

    text  --special tokens-->  fragments  --pre-tokenizer-->  words  --merges, native-->  ids

Special tokens: user-defined ones are matched in any text. Control tokens only where `parse_special` allows it: text of
a user never turns into one. Where several could match, the leftmost wins, then the longest.
Bytes: any are encoded. Invalid UTF-8 goes through as it is (as Python's surrogateescape), and decoding gives it back;
a str with surrogates that stand for no byte cannot be encoded in UTF-8: they are read as U+FFFD.
Bytes without a token of their own, which some vocabularies lack, become the unknown token, one each. Without an unknown
token they are left out, as by the tokenizers such vocabularies were trained with: those bytes alone do not come back.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import TYPE_CHECKING

from emel._native import bpe as native
from emel.text.pretokenizers import PreTokenizer, pre_tokenizer, word_ends
from emel.text.special import SpecialIds, SpecialPattern, find_special_ids
from emel.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emel.gguf.metadata import Metadata

SUPPORTED_MODELS = ("gpt2",)


class Tokenizer:
    """The tokenizer of one model. Immutable and safe to use from many threads."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        pre: PreTokenizer,
        special: SpecialIds,
        *,
        add_bos: bool = False,
        add_eos: bool = False,
        n_rows: int | None = None,
        unknown: int | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self._n_rows = n_rows if n_rows is not None else vocabulary.n_tokens
        self.special = special
        self.add_bos = add_bos and special.bos is not None
        self.add_eos = add_eos and special.eos is not None
        self._pre = pre
        self._unknown = unknown
        self._token_bytes: dict[int, bytes] = {}  # of those asked for so far

    @property
    def n_vocab(self) -> int:
        """Number of tokens; ids are 0 to n_vocab - 1."""
        return self.vocabulary.n_tokens

    @property
    def bos_id(self) -> int | None:
        """Begin of sequence, if the model has one."""
        return self.special.bos

    @property
    def eos_id(self) -> int | None:
        """End of sequence, if the model has one."""
        return self.special.eos

    @property
    def end_ids(self) -> frozenset[int]:
        """Ids that end a generation: end of sequence, of turn, of message."""
        return self.special.ends

    def is_control(self, token_id: int) -> bool:
        """Whether the token is one that text must not turn into unasked."""
        return token_id in self._control_ids

    def encode(self, text: str | bytes, *, add_special: bool, parse_special: bool) -> list[int]:
        """Ids of a text. add_special: begin and end as the model wants them; parse_special: read control tokens."""
        ids = self.encode_marked(as_text(text), {}, parse_special=parse_special)
        return self.with_bos(ids, add_eos=self.add_eos) if add_special else ids

    def encode_marked(self, text: str, restore: Mapping[int, str], *, parse_special: bool) -> list[int]:
        """As encode, but ordinary fragments go through str.translate after special tokens were looked for."""
        ids: list[int] = []
        pattern = self._any_special if parse_special else self._user_defined
        for fragment, token_id in pattern.partition(text):
            if fragment:
                ids += self._encode_ordinary(fragment.translate(restore) if restore else fragment)
            if token_id is not None:
                ids.append(token_id)
        return ids

    def with_bos(self, ids: list[int], *, add_eos: bool = False) -> list[int]:
        """The ids with exactly one begin token, if the model wants one, however many the text already has."""
        n_bos = 0
        while self.add_bos and n_bos < len(ids) and ids[n_bos] == self.bos_id:
            n_bos += 1
        head = [self.bos_id] if self.add_bos and self.bos_id is not None else []
        tail = [self.eos_id] if add_eos and self.eos_id is not None else []
        return head + ids[n_bos:] + tail

    def decode(self, ids: Sequence[int]) -> bytes:
        """The bytes of ids, none for rows without a token; IndexError for an id outside the vocabulary."""
        if self._n_rows > self.n_vocab:
            ids = [each for each in ids if not self.n_vocab <= each < self._n_rows]
        return self.vocabulary.decode(ids)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token; a control token gives its name."""
        data = self._token_bytes.get(token_id)
        if data is None:
            data = self._token_bytes[token_id] = self.decode((token_id,))
        return data

    def control_ids_in(self, text: str) -> list[int]:
        """The control tokens that reading all special tokens finds in a text, in order."""
        found = (token_id for _, token_id in self._any_special.partition(text))
        return [each for each in found if each is not None and self.is_control(each)]

    def control_texts(self) -> list[str]:
        """The texts of all control tokens."""
        return self._any_special.texts_of(self._control_ids)

    def _encode_ordinary(self, text: str) -> list[int]:
        data = text.encode("utf-8", "surrogateescape")
        ends = word_ends(self._pre.split(text))
        if self._unknown is None or self._without_token is None:
            return self.vocabulary.encode_words(data, ends)
        ids: list[int] = []
        begin = 0
        for match in self._without_token.finditer(data):
            ids += [*self._encode_range(data, ends, begin, match.start()), self._unknown]
            begin = match.end()
        return ids + self._encode_range(data, ends, begin, len(data))

    def _encode_range(self, data: bytes, ends: array[int], begin: int, end: int) -> list[int]:
        if begin == end:
            return []
        inside = (each - begin for each in ends[bisect_right(ends, begin) : bisect_left(ends, end)])
        return self.vocabulary.encode_words(data[begin:end], array("Q", [*inside, end - begin]))

    @cached_property
    def _without_token(self) -> re.Pattern[bytes] | None:
        missing = self.vocabulary.bytes_without_token()
        return re.compile(b"[" + re.escape(missing) + b"]") if missing else None

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        listed = self.vocabulary.ids_of_types(native.TOKEN_CONTROL, native.TOKEN_UNKNOWN)
        return frozenset(listed) | self.special.ends

    @cached_property
    def _user_defined(self) -> SpecialPattern:
        ids = frozenset(self.vocabulary.ids_of_types(native.TOKEN_USER_DEFINED)) - self._control_ids
        return SpecialPattern(self.vocabulary, ids)

    @cached_property
    def _any_special(self) -> SpecialPattern:
        ids = frozenset(self.vocabulary.ids_of_types(native.TOKEN_USER_DEFINED)) | self._control_ids
        return SpecialPattern(self.vocabulary, ids)


def load_tokenizer(metadata: Metadata, n_rows: int | None = None) -> Tokenizer:
    """The tokenizer a GGUF file describes; ValueError naming what is unsupported or does not fit together.

    n_rows: of the model's embedding, if it is known. More rows than tokens are padding, and their ids have no text;
    more tokens than rows could be asked for without the model knowing them.
    """
    model = metadata.get_str("tokenizer.ggml.model")
    if model not in SUPPORTED_MODELS:
        supported = ", ".join(SUPPORTED_MODELS)
        raise ValueError(
            f"tokenizer model {model!r} (tokenizer.ggml.model) is not supported; supported: {supported} (byte BPE)"
        )
    pre = pre_tokenizer(metadata.get_str("tokenizer.ggml.pre", "default"))
    tokens = metadata.get_strings("tokenizer.ggml.tokens")
    if n_rows is not None and tokens.count > n_rows:
        raise ValueError(
            f"the vocabulary has {tokens.count} tokens (tokenizer.ggml.tokens), but the model embeds only {n_rows}: "
            "their numbers do not fit together"
        )
    types = metadata.get_ints("tokenizer.ggml.token_type", None)
    merges = metadata.get_strings("tokenizer.ggml.merges", None)
    vocabulary = Vocabulary(tokens, types, merges, ignore_merges=pre.ignore_merges)
    special = find_special_ids(metadata, vocabulary)
    return Tokenizer(
        vocabulary,
        pre,
        special,
        add_bos=metadata.get_bool("tokenizer.ggml.add_bos_token", pre.add_bos),
        add_eos=metadata.get_bool("tokenizer.ggml.add_eos_token", False),
        n_rows=n_rows,
        unknown=_find_unknown(metadata, vocabulary, special),
    )


def _find_unknown(metadata: Metadata, vocabulary: Vocabulary, special: SpecialIds) -> int | None:
    """The token for what has none. Files also name begin and end tokens as it: text must not turn into those."""
    named = metadata.get_int("tokenizer.ggml.unknown_token_id", None)
    candidates = [] if named is None or not 0 <= named < vocabulary.n_tokens else [named]
    candidates += vocabulary.ids_of_types(native.TOKEN_UNKNOWN)
    taken = {special.bos, special.eos, *special.ends}
    return next((each for each in candidates if each not in taken), None)


def as_text(text: str | bytes) -> str:
    """Any str or bytes as a str whose lone surrogates are exactly the bytes that are not UTF-8."""
    if isinstance(text, bytes):
        return text.decode("utf-8", "surrogateescape")
    try:
        text.encode()
    except UnicodeEncodeError:
        try:
            return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
