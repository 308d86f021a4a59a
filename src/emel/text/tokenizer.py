"""Text -> token ids -> bytes.

    text  --special tokens-->  fragments  --the family's encoder-->  ids

Special tokens: user-defined ones are matched in any text. Control tokens only where `parse_special` allows it: text of
a user never turns into one. Where several could match, the leftmost wins, then the longest.
Bytes: any are encoded. Invalid UTF-8 goes through as it is (as Python's surrogateescape), and decoding gives it back;
a str with surrogates that stand for no byte cannot be encoded in UTF-8: they are read as U+FFFD.
docs/reference/tokenizers.md says which families exist, and where one of them does not give back what was put in.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from emel._native import vocab as native
from emel.text.special import SpecialPattern
from emel.text.special_ids import SpecialIds, find_special_ids, find_stripping_ids
from emel.text.tokenizer_families import Encoder, read_family
from emel.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emel.gguf.metadata import Metadata

_CONTROL = (native.TOKEN_CONTROL, native.TOKEN_UNKNOWN)
_USER_DEFINED = (native.TOKEN_USER_DEFINED,)
_SPECIAL = (*_CONTROL, *_USER_DEFINED)


class Tokenizer:
    """The tokenizer of one model. Immutable and safe to use from many threads."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        encoder: Encoder,
        special: SpecialIds,
        *,
        add_bos: bool = False,
        add_eos: bool = False,
        add_sep: bool = False,
        add_space: bool = False,
        strips: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset()),
        n_rows: int | None = None,
    ) -> None:
        """add_space: the encoder puts a space in front of each fragment, which decoding takes away again.

        strips: ids of special tokens that swallow the white space before them, and of those that swallow it behind.
        """
        self.vocabulary = vocabulary
        self._n_rows = n_rows if n_rows is not None else vocabulary.n_tokens
        self.special = special
        self.add_bos = add_bos and special.bos is not None
        self.add_eos = add_eos and special.eos is not None
        self.add_sep = add_sep and special.sep is not None
        self._add_space = add_space
        self._encoder = encoder
        self._user_defined = self._pattern(_USER_DEFINED, strips)
        self._any_special = self._pattern(_SPECIAL, strips)
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
        return self.with_bos(ids) + self._tail if add_special else ids

    def encode_marked(self, text: str, restore: Mapping[int, str], *, parse_special: bool) -> list[int]:
        """As encode, but ordinary fragments go through str.translate after special tokens were looked for."""
        ids: list[int] = []
        is_first = True
        pattern = self._any_special if parse_special else self._user_defined
        for fragment, token_id in pattern.partition(text):
            if fragment:
                ordinary = fragment.translate(restore) if restore else fragment
                ids += self._encoder.encode(ordinary, is_first=is_first)
                is_first = False
            if token_id is not None:
                ids.append(token_id)
                is_first = True
        return ids

    def with_bos(self, ids: list[int]) -> list[int]:
        """The ids with exactly one begin token, if the model wants one, however many the text already has."""
        n_bos = 0
        while self.add_bos and n_bos < len(ids) and ids[n_bos] == self.bos_id:
            n_bos += 1
        head = [self.bos_id] if self.add_bos and self.bos_id is not None else []
        return head + ids[n_bos:]

    def decode(self, ids: Sequence[int]) -> bytes:
        """The bytes of ids, none for rows without a token; IndexError for an id outside the vocabulary."""
        if self._n_rows > self.n_vocab:
            ids = [each for each in ids if not self.n_vocab <= each < self._n_rows]
        if not self._add_space:
            return self.vocabulary.decode(ids)
        return b"".join(self._without_added_space(each) for each in self._cut_at_special(ids))

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token inside a text; a control token gives its name."""
        data = self._token_bytes.get(token_id)
        if data is None:
            is_padding = self.n_vocab <= token_id < self._n_rows
            data = self._token_bytes[token_id] = b"" if is_padding else self.vocabulary.decode((token_id,))
        return data

    def control_ids_in(self, text: str) -> list[int]:
        """The control tokens that reading all special tokens finds in a text, in order."""
        found = (token_id for _, token_id in self._any_special.partition(text))
        return [each for each in found if each is not None and self.is_control(each)]

    def control_texts(self) -> list[str]:
        """The texts of all control tokens."""
        return self._control_texts

    @property
    def _tail(self) -> list[int]:
        ends = ((self.special.sep, self.add_sep), (self.special.eos, self.add_eos))
        return [each for each, is_added in ends if each is not None and is_added]

    def _cut_at_special(self, ids: Sequence[int]) -> list[list[int]]:
        """The ids, cut before and after each token that partition() finds in text."""
        parts: list[list[int]] = [[]]
        for each in ids:
            if each in self._special_ids:
                parts += [each], []
            else:
                parts[-1].append(each)
        return parts

    def _without_added_space(self, ids: list[int]) -> bytes:
        data = self.vocabulary.decode(ids)
        return data if not ids or ids[0] in self._special_ids else data.removeprefix(b" ")

    def _pattern(self, types: tuple[int, ...], strips: tuple[frozenset[int], frozenset[int]]) -> SpecialPattern:
        return SpecialPattern(self.vocabulary, types, strips_left=strips[0], strips_right=strips[1])

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        return frozenset(self.vocabulary.ids_of_types(*_CONTROL))

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        return frozenset(self.vocabulary.ids_of_types(*_SPECIAL))

    @cached_property
    def _control_texts(self) -> list[str]:
        data = (self.vocabulary.decode((each,)) for each in sorted(self._control_ids))
        return [each.decode("utf-8", "surrogateescape") for each in data if each]


def load_tokenizer(metadata: Metadata, n_rows: int | None = None) -> Tokenizer:
    """The tokenizer a GGUF file describes; ValueError naming what is unsupported or does not fit together.

    n_rows: of the model's embedding, if it is known. More rows than tokens are padding, and their ids have no text;
    more tokens than rows could be asked for without the model knowing them.
    """
    family = read_family(metadata)
    tokens = metadata.get_strings("tokenizer.ggml.tokens")
    if n_rows is not None and tokens.count > n_rows:
        raise ValueError(
            f"the vocabulary has {tokens.count} tokens (tokenizer.ggml.tokens), but the model embeds only {n_rows}: "
            "their numbers do not fit together"
        )
    types = metadata.get_ints("tokenizer.ggml.token_type", None)
    vocabulary = Vocabulary(tokens, types, spelling=family.spelling)
    special = find_special_ids(metadata, vocabulary, family.texts)
    vocabulary.mark_control(sorted(special.ends))
    return Tokenizer(
        vocabulary,
        family.make(vocabulary, special.unknown),
        special,
        add_bos=metadata.get_bool("tokenizer.ggml.add_bos_token", family.add_bos),
        add_eos=metadata.get_bool("tokenizer.ggml.add_eos_token", family.add_eos),
        add_sep=metadata.get_bool("tokenizer.ggml.add_sep_token", family.add_sep),
        add_space=family.add_space,
        strips=find_stripping_ids(metadata, vocabulary),
        n_rows=n_rows,
    )


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
