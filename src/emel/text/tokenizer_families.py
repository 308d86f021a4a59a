"""The kinds of tokenizer a GGUF file can name (`tokenizer.ggml.model`), and what each takes for granted.

The names and defaults are llama.cpp's, which invented the keys:
https://github.com/ggml-org/llama.cpp/blob/00ad355e009e83abf98f96a6ded7193b95763681/src/llama-vocab.cpp
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from emel._native import vocab as native
from emel.text.pretokenizer_patterns import pre_tokenizer

if TYPE_CHECKING:
    from emel.gguf.metadata import Metadata
    from emel.text.vocabulary import Vocabulary


class Encoder(Protocol):
    """Text without special tokens -> ids. Any str, lone surrogates being bytes that are not UTF-8."""

    def encode(self, text: str, *, is_first: bool) -> list[int]:
        """The ids; is_first: the text begins the whole, or follows a special token."""
        ...


MakeEncoder = Callable[["Vocabulary", "int | None"], Encoder]


@dataclass(frozen=True)
class Family:
    """How one file tokenizes, before its vocabulary is read. make: of the vocabulary and its unknown token."""

    make: MakeEncoder
    spelling: int = native.SPELLING_BYTE_LEVEL
    add_bos: bool = False
    add_eos: bool = False
    add_sep: bool = False
    add_space: bool = False  # the encoder puts a space in front, which decoding takes away again
    texts: Mapping[str, str] = field(default_factory=dict)  # of special tokens whose ids a file may leave out


def read_family(metadata: Metadata) -> Family:
    """The family a file names; ValueError naming what is unknown or missing."""
    model = metadata.get_str("tokenizer.ggml.model")
    reader = _READERS.get(model)
    if reader is None:
        supported = ", ".join(_READERS)
        raise ValueError(
            f"tokenizer model {model!r} (tokenizer.ggml.model) is not supported; supported are: {supported}"
        )
    return reader(metadata)


def _read_bpe(metadata: Metadata) -> Family:
    name = metadata.get_str("tokenizer.ggml.pre", "default")
    # Gemma 4's files name their only way to split as the model.
    pre = pre_tokenizer("gemma4" if metadata.get_str("tokenizer.ggml.model") == "gemma4" else name)
    merges = metadata.get_strings("tokenizer.ggml.merges", None)

    def make(vocabulary: Vocabulary, unknown: int | None) -> Encoder:
        from emel.text.tokenizer_bpe import BpeEncoder  # noqa: PLC0415 - one family is enough

        return BpeEncoder(vocabulary, merges, pre, unknown)

    spelling = native.SPELLING_SPACE_MARK if pre.marks_spaces else native.SPELLING_BYTE_LEVEL
    return Family(make, spelling, add_bos=pre.add_bos)


def _read_spm(metadata: Metadata) -> Family:
    scores = metadata.get_floats("tokenizer.ggml.scores")
    add_space = metadata.get_bool("tokenizer.ggml.add_space_prefix", True)

    def make(vocabulary: Vocabulary, unknown: int | None) -> Encoder:
        from emel.text.tokenizer_spm import SpmEncoder  # noqa: PLC0415 - one family is enough

        return SpmEncoder(vocabulary, scores, add_space=add_space, unknown=unknown)

    texts = {"bos": "<s>", "eos": "</s>"}
    return Family(make, native.SPELLING_SPACE_MARK, add_bos=True, add_space=add_space, texts=texts)


def _read_wordpiece(metadata: Metadata) -> Family:
    lowercase = metadata.get_bool("tokenizer.ggml.normalizer.lowercase", True)
    strip_accents = metadata.get_bool("tokenizer.ggml.normalizer.strip_accents", lowercase)

    def make(vocabulary: Vocabulary, unknown: int | None) -> Encoder:
        from emel.text.tokenizer_wordpiece import WordPieceEncoder  # noqa: PLC0415 - one family is enough

        return WordPieceEncoder(vocabulary, lowercase=lowercase, strip_accents=strip_accents, unknown=unknown)

    texts = {"bos": "[CLS]", "sep": "[SEP]", "unknown": "[UNK]"}
    return Family(make, native.SPELLING_SPACE_MARK, add_bos=True, add_sep=True, add_space=True, texts=texts)


def _read_unigram(metadata: Metadata) -> Family:
    scores = metadata.get_floats("tokenizer.ggml.scores")
    charsmap = metadata.get_ints("tokenizer.ggml.precompiled_charsmap", None)
    add_space = metadata.get_bool("tokenizer.ggml.add_space_prefix", False)
    remove_extra = metadata.get_bool("tokenizer.ggml.remove_extra_whitespaces", False)

    def make(vocabulary: Vocabulary, unknown: int | None) -> Encoder:
        from emel.text.tokenizer_unigram import UnigramEncoder  # noqa: PLC0415 - one family is enough

        return UnigramEncoder(
            vocabulary,
            scores,
            charsmap.tobytes() if charsmap is not None else b"",
            add_space=add_space,
            remove_extra_spaces=remove_extra,
            unknown=unknown,
        )

    texts = {"eos": "</s>", "unknown": "<unk>"}
    return Family(make, native.SPELLING_SPACE_MARK, add_eos=True, add_space=add_space, texts=texts)


def _read_rwkv(_metadata: Metadata) -> Family:
    from emel.text.tokenizer_rwkv import RwkvEncoder  # noqa: PLC0415 - one family is enough

    return Family(RwkvEncoder, native.SPELLING_ESCAPED)


def _read_plamo2(metadata: Metadata) -> Family:
    scores = metadata.get_floats("tokenizer.ggml.scores")

    def make(vocabulary: Vocabulary, _unknown: int | None) -> Encoder:
        from emel.text.tokenizer_plamo2 import Plamo2Encoder  # noqa: PLC0415 - one family is enough

        return Plamo2Encoder(vocabulary, scores)

    texts = {"bos": "<|plamo:bos|>", "eos": "<|plamo:eos|>"}
    return Family(make, native.SPELLING_PLAIN, texts=texts)


_READERS: dict[str, Callable[[Metadata], Family]] = {
    "gpt2": _read_bpe,
    "gemma4": _read_bpe,
    "llama": _read_spm,
    "bert": _read_wordpiece,
    "t5": _read_unigram,
    "rwkv": _read_rwkv,
    "plamo2": _read_plamo2,
}
