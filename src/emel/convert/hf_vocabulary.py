"""The tokenizer of a Hugging Face directory as GGUF's metadata: byte-level BPE, and SentencePiece with scores.

Special tokens, merges and the chat template are read by the gguf package (`SpecialVocab`), tokenizer.model by its
`SentencePieceVocab`. A SentencePiece vocabulary that is there only as tokenizer.json has merges in place of scores: the
earlier a merge, the higher the score of the token it makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emel.convert.errors import ConvertError
from emel.convert.hf_files import read_json
from emel.convert.hf_pretokenizer import find_pre_tokenizer
from emel.convert.writing import load_gguf
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from pathlib import Path

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_SPACE_MARK = "\u2581"


@dataclass(slots=True)
class _Tokens:
    """Text (None: no such token), score and type by id."""

    texts: list[str | None]
    scores: list[float]
    types: list[int]

    def put(self, token_id: int, text: str, type_: int, score: float = 0.0) -> None:
        if not 0 <= token_id < len(self.texts):
            raise ConvertError(f"token {text!r} has the id {token_id}: the embedding has {len(self.texts)} rows")
        self.texts[token_id], self.types[token_id], self.scores[token_id] = text, type_, score


def add_vocabulary(writer: Any, folder: Path, n_vocab: int, *, pre: str | None = None, adds_space: bool) -> None:
    """Writes `tokenizer.*` to a gguf.GGUFWriter. `pre`: a pre-tokenizer's name in place of the one that is found.

    `adds_space`: whether SentencePiece puts a space before a text, where the directory does not say. ConvertError for
    other kinds of tokenizers.
    """
    gguf = load_gguf()
    has_json, has_model = (folder / "tokenizer.json").exists(), (folder / "tokenizer.model").exists()
    if not (has_json or has_model):
        raise ConvertError(f"{str(folder)!r} has neither tokenizer.json nor tokenizer.model")
    tokenizer = read_json(folder / "tokenizer.json") if has_json else {}
    model = tokenizer.get("model", {})
    tokens = _Tokens([None] * n_vocab, [0.0] * n_vocab, [_UNUSED] * n_vocab)
    is_pieces = has_model or bool(model.get("byte_fallback"))
    if has_model:
        _take_model(tokens, folder)
    elif model.get("type", "BPE") == "BPE" and "vocab" in model:
        _take_bpe(tokens, model, is_pieces=is_pieces)
    else:
        raise ConvertError(f"tokenizer.json holds a {model.get('type')} model: BPE is supported")
    for added in _added_tokens(folder, tokenizer):
        text = added["content"].replace(_SPACE_MARK, " ") if is_pieces and not added["special"] else added["content"]
        tokens.put(added["id"], text, _CONTROL if added["special"] else _USER_DEFINED, -1000.0 if is_pieces else 0.0)
    texts = [f"[PAD{token_id}]" if text is None else text for token_id, text in enumerate(tokens.texts)]
    writer.add_tokenizer_model("llama" if is_pieces else "gpt2")
    writer.add_tokenizer_pre("default" if is_pieces else pre or find_pre_tokenizer(tokenizer))
    writer.add_token_list(texts)
    if is_pieces:
        writer.add_token_scores(tokens.scores)
    writer.add_token_types(tokens.types)
    if is_pieces:
        config = folder / "tokenizer_config.json"
        given = read_json(config).get("add_prefix_space") if config.exists() else None
        writer.add_add_space_prefix(adds_space if given is None else bool(given))
    gguf.SpecialVocab(folder, load_merges=not is_pieces, n_vocab=n_vocab).add_to_gguf(writer, quiet=True)


def _take_model(tokens: _Tokens, folder: Path) -> None:
    from gguf.vocab import SentencePieceVocab

    try:
        found = SentencePieceVocab(folder)
    except RuntimeError:
        raise ConvertError(
            "tokenizer.model needs the sentencepiece package", hint="pip install sentencepiece"
        ) from None
    for token_id, (text, score, kind) in enumerate(found.all_tokens()):
        tokens.put(token_id, text.decode("utf-8"), int(kind), score)


def _take_bpe(tokens: _Tokens, model: dict[str, Any], *, is_pieces: bool) -> None:
    ranks: dict[str, int] = {}
    if is_pieces:
        for rank, merge in enumerate(model.get("merges", [])):
            parts = merge.split(" ") if isinstance(merge, str) else merge
            ranks.setdefault("".join(parts), rank)
    unknown = model.get("unk_token")
    for text, token_id in model["vocab"].items():
        is_byte = is_pieces and len(text) == 6 and text.startswith("<0x") and text.endswith(">")
        kind = _BYTE if is_byte else _UNKNOWN if is_pieces and text == unknown else _NORMAL
        tokens.put(token_id, text, kind, -float(ranks.get(text, len(ranks))))


def _added_tokens(folder: Path, tokenizer: dict[str, Any]) -> list[dict[str, Any]]:
    """Tokens besides the model's: id, content and special of each."""
    added = {each["id"]: each for each in tokenizer.get("added_tokens", [])}
    config = folder / "tokenizer_config.json"
    if config.exists():
        for token_id, each in read_json(config).get("added_tokens_decoder", {}).items():
            added.setdefault(int(token_id), {**each, "id": int(token_id)})
    return [
        {"id": token_id, "content": each["content"], "special": bool(each.get("special", False))}
        for token_id, each in added.items()
    ]
