"""Small byte-level BPE vocabularies in GGUF's own encoding."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from emel.gguf.arrays import StringArray
from emel.gguf.entries import Entry
from emel.gguf.metadata import Metadata
from emel.gguf.values import ValueType
from emel.text.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END, IM_START, IM_END = range(3)


def byte_characters() -> list[str]:
    """The printable character that stands for each byte, written down apart from the native table."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = (byte for byte in range(256) if byte not in printable)
    shifted = {byte: chr(256 + place) for place, byte in enumerate(others)}
    return [shifted.get(byte, chr(byte)) for byte in range(256)]


def in_byte_code(data: bytes) -> str:
    """Bytes as a token's text in the file."""
    characters = byte_characters()
    return "".join(characters[byte] for byte in data)


def string_array(texts: Iterable[str | bytes]) -> StringArray:
    encoded = [each if isinstance(each, bytes) else each.encode() for each in texts]
    raw = b"".join(struct.pack("<Q", len(each)) + each for each in encoded)
    return StringArray(len(encoded), memoryview(raw))


def metadata(**values: object) -> Metadata:
    """Metadata of `tokenizer.ggml.*` keys and the chat template (type by the Python value)."""
    entries = {}
    for key, value in values.items():
        if isinstance(value, StringArray):
            entry = Entry(ValueType.ARRAY, ValueType.STRING, value)
        elif isinstance(value, memoryview):
            entry = Entry(ValueType.ARRAY, ValueType.INT32, value)
        elif isinstance(value, bool):
            entry = Entry(ValueType.BOOL, None, value)
        elif isinstance(value, int):
            entry = Entry(ValueType.UINT32, None, value)
        else:
            entry = Entry(ValueType.STRING, None, str(value))
        entries["tokenizer.chat_template" if key == "chat_template" else f"tokenizer.ggml.{key}"] = entry
    return Metadata(entries)


def tiny_metadata(
    merges: Sequence[tuple[bytes, bytes]] = (),
    *,
    pre: str = "gpt-2",
    extra: Mapping[str, int] | None = None,
    **values: object,
) -> Metadata:
    """Three control tokens (0 to 2), all bytes (3 to 258), the merges' results, then extra texts with their types."""
    texts = [*CONTROLS, *byte_characters()]
    types = [CONTROL] * 3 + [NORMAL] * 256
    for left, right in merges:
        joined = in_byte_code(left + right)
        if joined not in texts:
            texts.append(joined)
            types.append(NORMAL)
    for text, kind in (extra or {}).items():
        texts.append(text)
        types.append(kind)
    return metadata(
        **{
            "model": "gpt2",
            "pre": pre,
            "tokens": string_array(texts),
            "token_type": memoryview(struct.pack(f"<{len(types)}i", *types)).cast("i"),
            "merges": string_array(f"{in_byte_code(left)} {in_byte_code(right)}" for left, right in merges),
            "bos_token_id": IM_START,
            "eos_token_id": IM_END,
            **values,
        }
    )


def tiny_tokenizer(merges: Sequence[tuple[bytes, bytes]] = (), **values: object) -> Tokenizer:
    """A tokenizer of tiny_metadata."""
    return load_tokenizer(tiny_metadata(merges, **values))  # type: ignore[arg-type]


def id_of(tokenizer: Tokenizer, data: bytes) -> int:
    """The id of the ordinary token of these bytes."""
    found = tokenizer.vocabulary.find(in_byte_code(data))
    assert found is not None, data
    return found
