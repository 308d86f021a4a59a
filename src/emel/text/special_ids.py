"""Which tokens are special: by the ids a file names, and by the texts of well-known models where it names none."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from emel._native import vocab as native
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf.metadata import Metadata
    from emel.text.vocabulary import Vocabulary

# ruff: noqa: RUF001 - DeepSeek writes its tokens with a bar that looks like another.

# Files often name only one of the tokens that end a turn. These texts end it in the models that have them: the list
# llama.cpp keeps for the same reason (`special_eog_ids`,
# https://github.com/ggml-org/llama.cpp/blob/00ad355e009e83abf98f96a6ded7193b95763681/src/llama-vocab.cpp).
_END_TEXTS = (
    "<|eot_id|>",  # Llama 3
    "<|eom_id|>",
    "<|im_end|>",  # ChatML
    "<|end|>",  # Phi 3
    "<|return|>",  # gpt-oss
    "<|call|>",
    "<|calls|>",  # Solar Open
    "<|flush|>",
    "<end_of_turn>",  # Gemma
    "<turn|>",  # Gemma 4
    "<|tool_response>",
    "<|endoftext|>",  # GPT-2
    "<|end_of_text|>",  # Granite
    "<EOT>",
    "_<EOT>",
    "[EOT]",  # Kimi K2
    "[EOS]",
    "<end_of_utterance>",  # SmolVLM
    "<｜end▁of▁sentence｜>",  # DeepSeek
    "[e~[",  # MiniMax M2
)
# These end it only where the file says that they are control tokens: to others they are a tag of HTML, for one.
_END_CONTROL_TEXTS = ("</s>", "<eos>")
# In gpt-oss and Solar Open <|end|> only separates channels: beside these it does not end a turn.
_CHANNEL_ENDS = (("<|return|>", "<|call|>"), ("<|flush|>", "<|calls|>"))
_END_KEYS = ("eos", "eot", "eom")

# Filling in the middle: the keys of the file (the second spelling is deprecated), then the texts of known models.
_FIM_KEYS = {
    "prefix": "fim_pre",
    "suffix": "fim_suf",
    "middle": "fim_mid",
    "pad": "fim_pad",
    "repo": "fim_rep",
    "file": "fim_sep",
}
_OLD_FIM_KEYS = {"prefix": "prefix", "suffix": "suffix", "middle": "middle"}
_FIM_TEXTS = {
    "prefix": (
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>",
        "<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>",
    ),
    "suffix": (
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>",
        "<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>",
    ),
    "middle": (
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>",
        "<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>",
    ),
    "pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "repo": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "file": ("<|file_sep|>",),
}  # fmt: skip
# A model that begins another file or repository is done with this one.
_FIM_ENDS = ("pad", "repo", "file")


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """Ids of the special tokens a file names; None where it names none."""

    bos: int | None = None
    eos: int | None = None
    sep: int | None = None
    unknown: int | None = None
    """For what has no token. Never one that begins or ends something: text must not turn into those."""
    ends: frozenset[int] = frozenset()
    fim: Mapping[str, int] = field(default_factory=dict)
    """For filling in the middle: prefix, suffix, middle, pad, repo, file, as far as the model has them."""


def find_special_ids(metadata: Metadata, vocabulary: Vocabulary, texts: Mapping[str, str] | None = None) -> SpecialIds:
    """The special ids that `tokenizer.ggml.*_token_id` and well-known texts give; ValueError for ids out of range.

    texts: what a token's text is in this family, by the key that names its id ("bos", "eos", "sep", "unknown"), for
    files that leave the key out.
    """
    named = {key: _named_id(metadata, key, vocabulary) for key in ("bos", "cls", "seperator", *_END_KEYS)}
    if named["bos"] is None:
        named["bos"] = named["cls"]
    named["sep"] = named["seperator"]  # GGUF's own spelling of the key
    named["unknown"] = None
    for key, text in (texts or {}).items():
        if named[key] is None:
            named[key] = vocabulary.find(text)
    fim = _find_fim(metadata, vocabulary)
    ends = {named[key] for key in _END_KEYS} | {fim.get(key) for key in _FIM_ENDS} | _find_ends(vocabulary)
    taken = {named["bos"], named["sep"], *ends}
    listed = metadata.get_int("tokenizer.ggml.unknown_token_id", None)
    candidates = [listed if listed is not None and 0 <= listed < vocabulary.n_tokens else None, named["unknown"]]
    candidates += vocabulary.ids_of_types(native.TOKEN_UNKNOWN)
    return SpecialIds(
        bos=named["bos"],
        eos=named["eos"],
        sep=named["sep"],
        unknown=next((each for each in candidates if each is not None and each not in taken), None),
        ends=frozenset(each for each in ends if each is not None),
        fim=fim,
    )


def find_stripping_ids(metadata: Metadata, vocabulary: Vocabulary) -> tuple[frozenset[int], frozenset[int]]:
    """Ids of the special tokens that swallow the white space before them, and of those that swallow it behind.

    No key of GGUF says so. By the names of models, as llama.cpp (the citation above) has it.
    """
    pre = metadata.get_str("tokenizer.ggml.pre", "")
    architecture = metadata.get_str("general.architecture", "")
    name = metadata.get_str("general.name", "").lower()
    left: list[int | None] = []
    right: set[int] = set()
    if any(each in pre for each in ("jina-v2-de", "jina-v2-es", "jina-v2-code")) or architecture in (
        "nomic-bert-moe",
        "jina-bert-v3",
    ):
        left.append(vocabulary.find("<mask>"))
    elif "phi-3" in name or "phi3" in name:
        special = (native.TOKEN_CONTROL, native.TOKEN_UNKNOWN, native.TOKEN_USER_DEFINED)
        kept = {vocabulary.find(each) for each in ("<unk>", "<s>", "<|endoftext|>")}
        right = set(vocabulary.ids_of_types(*special)) - kept
    elif "modern-bert" in name:
        left.append(vocabulary.find("[MASK]"))
    return frozenset(each for each in left if each is not None), frozenset(right)


def _find_ends(vocabulary: Vocabulary) -> set[int | None]:
    ends = {vocabulary.find(text) for text in _END_TEXTS}
    controls = frozenset(vocabulary.ids_of_types(native.TOKEN_CONTROL))
    ends |= {vocabulary.find(text) for text in _END_CONTROL_TEXTS} & controls
    if any(all(vocabulary.find(text) is not None for text in texts) for texts in _CHANNEL_ENDS):
        ends.discard(vocabulary.find("<|end|>"))
    return ends


def _find_fim(metadata: Metadata, vocabulary: Vocabulary) -> dict[str, int]:
    found = {}
    for role, key in _FIM_KEYS.items():
        token_id = _named_id(metadata, key, vocabulary)
        if token_id is None and role in _OLD_FIM_KEYS:
            token_id = _named_id(metadata, _OLD_FIM_KEYS[role], vocabulary)
        if token_id is None:
            token_id = next((each for each in map(vocabulary.find, _FIM_TEXTS[role]) if each is not None), None)
        if token_id is not None:
            found[role] = token_id
    return found


def _named_id(metadata: Metadata, name: str, vocabulary: Vocabulary) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    token_id = metadata.get_int(key, None)
    if token_id is not None and not 0 <= token_id < vocabulary.n_tokens:
        raise ValueError(f"{key} is {token_id}: allowed are 0 to {vocabulary.n_tokens - 1}")
    return token_id
