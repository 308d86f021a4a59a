"""A Hugging Face directory (config.json, safetensors, a tokenizer) as a GGUF file, tensor by tensor."""

from __future__ import annotations

import os
import struct
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emel.convert.errors import ConvertError
from emel.convert.hf_encoders import (
    add_word_pieces,
    dense_tensors,
    encoder_keys,
    pooling_keys,
    with_usual_names,
)
from emel.convert.hf_families import find_family
from emel.convert.hf_files import read_json, read_tensors
from emel.convert.hf_parameters import keys_of
from emel.convert.hf_tensors import out_tensors
from emel.convert.hf_vocabulary import add_vocabulary
from emel.convert.mixes import MIXES, ModelShape, choose_types
from emel.convert.out_tensors import OutTensor
from emel.convert.quantizing import Progress, Summary
from emel.convert.values import encode
from emel.convert.writing import QUANTIZATION_VERSION, GgufOutput
from emel.errors import EmelError
from emel.gguf import TensorInfo
from emel.tensor.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emel.convert.hf_families import Config, Family

OUT_TYPES = ("f32", "f16", "bf16", "q8_0")


def convert_directory(
    folder: str | os.PathLike[str],
    target: str | os.PathLike[str],
    out_type: str = "f16",
    *,
    pre: str | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Summary:
    """Writes `target`, the model of a directory with its matrices in one of OUT_TYPES and the rest in float32.

    `pre`: a pre-tokenizer by name (`tokenizer.ggml.pre`) where none is recognised. ConvertError for what is missing,
    not supported or damaged.
    """
    if out_type not in OUT_TYPES:
        raise ConvertError(f"type {out_type!r} is unknown: allowed are {', '.join(OUT_TYPES)}")
    with _understanding(folder):
        return _convert(Path(folder), target, out_type, pre, report)


@contextmanager
def _understanding(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever trips over a value of another kind than is usual, anywhere in a directory's files, says ConvertError."""
    try:
        yield
    except EmelError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error) as error:
        raise ConvertError(
            f"{os.fspath(folder)!r} cannot be understood: config.json, tokenizer.json or another file lacks a value or "
            f"has one of another kind than is usual ({type(error).__name__}: {error})"
        ) from error


def _convert(
    source: Path,
    target: str | os.PathLike[str],
    out_type: str,
    pre: str | None,
    report: Callable[[Progress], None] | None,
) -> Summary:
    mix = MIXES[out_type.upper()]
    config = with_usual_names(read_json(source / "config.json"))
    family = find_family(config)
    tensors = out_tensors(read_tensors(source), config, family) + _behind_pooling(source, family)
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    if "token_embd.weight" not in shapes:
        raise ConvertError(f"{str(source)!r} has no embedding of tokens")
    infos = {name: TensorInfo(name, shape, TensorType.F32, 0, 0) for name, shape in shapes.items()}
    types = choose_types(infos, mix, ModelShape(family.architecture, config["num_hidden_layers"], 0, is_grouped=False))
    types |= {tensor.name: tensor.stored for tensor in tensors if tensor.stored is not None}
    with GgufOutput(target, family.architecture) as output:
        writer = output.writer
        writer.add_name(source.resolve().name)
        writer.add_file_type(mix.file_type)
        writer.add_quantization_version(QUANTIZATION_VERSION)
        n_vocab = shapes["token_embd.weight"][0]
        writer.add_vocab_size(n_vocab)
        if family.has_word_pieces:
            keys = encoder_keys(config, family.architecture)
            add_word_pieces(writer, source, n_vocab, int(config.get("type_vocab_size", 1)))
        else:
            keys = keys_of(config, family, _d_ff(config, shapes))
            add_vocabulary(writer, source, n_vocab, pre=pre, adds_space=family.adds_space)
        keys |= pooling_keys(source, family.pooling)
        for key, value in keys.items():
            _add(writer, f"{family.architecture}.{key}", value)
        for tensor in tensors:
            output.declare(tensor.name, tensor.shape, types[tensor.name])
        output.begin()
        for n_done, tensor in enumerate(tensors, 1):
            type_ = types[tensor.name]
            _write(output, tensor, type_)
            if report is not None:
                report(Progress(tensor.name, TensorType.F32, type_, n_done, len(tensors)))
    n_values = sum(infos[name].n_values for name in shapes)
    n_after = sum(types[name].n_bytes(info.rows, info.cols) for name, info in infos.items())
    return Summary(4 * n_values, n_after, n_values)


def _write(output: GgufOutput, tensor: OutTensor, type_: TensorType) -> None:
    for load in tensor.pieces:
        values = load()
        if tensor.stored is None:
            values = encode(values.reshape(-1, values.shape[-1]), type_, tensor.name)
        output.add(values)
    output.end_tensor()


def _behind_pooling(source: Path, family: Family) -> list[OutTensor]:
    found = dense_tensors(source)
    if found and not family.has_dense:
        raise ConvertError("modules.json has a Dense module behind the pooling, which is not supported")
    return [OutTensor(name, tensor.shape, (tensor.load,)) for name, tensor in found.items()]


def _d_ff(config: Config, shapes: dict[str, tuple[int, ...]]) -> int:
    """The width of the feed-forwards: that of the first one, since some configurations tell it in a roundabout way."""
    dense, given = shapes.get("blk.0.ffn_down.weight"), config.get("intermediate_size")
    if dense is not None:
        return dense[-1]
    if not isinstance(given, int):
        raise ConvertError(f"config.json has intermediate_size {given!r}: a whole number is needed")
    return given


def _add(writer: Any, key: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case list():
            writer.add_array(key, value)
        case _:
            writer.add_string(key, value)
