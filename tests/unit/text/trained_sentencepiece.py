"""Small SentencePiece models, trained here, as GGUF arrays: what the encoders are compared with."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

from emel._native.vocab import SPELLING_SPACE_MARK
from emel.text.vocabulary import Vocabulary
from unit.text.tiny_vocabulary import string_array

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of SWIG's types
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as model_format

TEXTS = (
    "Hello world, it's   12,345.67 \u20ac!",
    "The quick brown fox jumps over the lazy dog.",
    "na\xefve caf\xe9 \ufb01ne \uff21\uff22",
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u044f\u0437\u044b\u043a",
    "\u4e2d\u6587\u5b57\u7b26\uff0c\u4f60\u597d",
    "\u65e5\u672c\u8a9e \u304b\u306a\u4ea4\u3058\u308a",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0928\u092e\u0938\u094d\u0924\u0947",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f600\U0001f600",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0645\u0631\u062d\u0628\u0627",
    " leading and trailing ",
    "a\xa0b\u3000c\u200bd",
    "e\u0301 e\u0301\u0302 \u1100\u1161\u11a8",
    "aaaa abab bbbb",
    "def f(x):\n\treturn x\n",
)


@dataclass(frozen=True)
class Trained:
    processor: Any
    vocabulary: Vocabulary
    scores: list[float]
    charsmap: bytes


@cache
def trained(kind: str, **options: Any) -> Trained:
    """A model of TEXTS; kind: "bpe" or "unigram"."""
    written = io.BytesIO()
    lines = [line for text in TEXTS for line in text.splitlines()] * 3
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=written,
        model_type=kind,
        minloglevel=2,
        hard_vocab_limit=False,
        **{"vocab_size": 700, **options},
    )
    pieces: Any = vars(model_format)["ModelProto"].FromString(written.getvalue())
    return Trained(
        sentencepiece.SentencePieceProcessor(model_proto=written.getvalue()),
        Vocabulary(
            string_array(each.piece for each in pieces.pieces),
            [each.type for each in pieces.pieces],
            spelling=SPELLING_SPACE_MARK,
        ),
        [each.score for each in pieces.pieces],
        pieces.normalizer_spec.precompiled_charsmap,
    )
