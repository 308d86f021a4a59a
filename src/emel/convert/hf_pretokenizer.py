"""Which of GGUF's pre-tokenizers cuts text as a tokenizer.json does: found by cutting a text with both.

tokenizer.json spells patterns out, GGUF names them (`tokenizer.ggml.pre`); llama.cpp's converter knows names by hashes
of published tokenizers. Here the patterns run, so that those of models nobody has hashed are found, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emel.convert.errors import ConvertError
from emel.text.pretokenizer_patterns import PRE_TOKENIZERS

if TYPE_CHECKING:
    from collections.abc import Callable

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""What ByteLevel cuts by (https://github.com/huggingface/tokenizers, pre_tokenizers/byte_level.rs)."""
# One name for each way to cut; the others of EMEL's table cut as one of these.
_CANDIDATES = (
    "gpt-2", "llama-bpe", "smaug-bpe", "glm4", "qwen2", "qwen35", "smollm", "gpt-4o", "tekken", "deepseek-v3",
    "deepseek-llm", "deepseek-coder", "falcon", "seed-coder", "bailingmoe", "ufakzeka", "bloom", "default",
)  # fmt: skip
_SAMPLE = (
    "Hello, World!  I'm here; YOU'RE there, we'Ve 3 33 333 4444 55555 1234567 3.14 x2y 12ab  \n\n \t tabs\t\tand   \n"
    "lines\r\n\r\nCamelCase camelCASE HTTPServer don't o'clock 'quoted' \"text\" ... !!! $%& #tag @me a/b\\c /path/ [x]"
    " {y}\n нещо на Български, Ελληνικά; 中文字符12和日本語カタカナ한국어 ไทย កាន់តែ ' \u0301e\u0301 🦙🦙"
    " 😶\u200d🌫️ ½ ² ³ Ⅷ ٣٤ \u00a0 \u3000 end \n  last"
)


def find_pre_tokenizer(tokenizer: dict[str, Any]) -> str:
    """The name for a tokenizer.json whose model is a byte-level BPE; ConvertError when none cuts as it does."""
    pieces = _cut(tokenizer.get("pre_tokenizer"), [_SAMPLE])
    ignores_merges = bool(tokenizer["model"].get("ignore_merges", False))
    equal = [name for name in _CANDIDATES if PRE_TOKENIZERS[name].split(_SAMPLE) == pieces]
    for name in equal:
        if PRE_TOKENIZERS[name].ignore_merges == ignores_merges:
            return name
    if equal:
        return equal[0]
    raise ConvertError(
        "no known pre-tokenizer cuts text as this tokenizer.json does", hint="--pre NAME says which one to take"
    )


def _cut(step: dict[str, Any] | None, pieces: list[str]) -> list[str]:
    """The pieces, cut by one step of tokenizer.json."""
    import regex

    pattern: str | None = None
    match step:
        case None:
            pass
        case {"type": "Sequence", "pretokenizers": list(steps)}:
            for each in steps:
                pieces = _cut(each, pieces)
        case {"type": "ByteLevel"}:
            pattern = _GPT2 if step.get("use_regex", True) else None
        case {"type": "Digits"}:
            pattern = r"\p{N}" if step.get("individual_digits") else r"\p{N}+"
        case {"type": "Punctuation"}:
            pattern = r"[\p{P}$+<=>^`|~]"
        case {"type": "Split", "pattern": {"Regex": str(found)}}:
            pattern = found
        case {"type": "Split", "pattern": {"String": str(text)}}:
            pattern = regex.escape(text)
        case _:
            raise ConvertError(f"the pre-tokenizer step {step.get('type')!r} of tokenizer.json is not known")
    return pieces if pattern is None else _cut_by(pieces, regex.compile(pattern).finditer)


def _cut_by(pieces: list[str], find: Callable[[str], Any]) -> list[str]:
    """Matches and what lies between them are pieces of their own."""
    found = []
    for piece in pieces:
        end = 0
        for match in find(piece):
            found += [piece[end : match.start()], match[0]]
            end = match.end()
        found.append(piece[end:])
    return [each for each in found if each]
