"""`emel inspect`: what is in a model file, without loading it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emel.cli.arguments import add_model, chosen_model, memory_amount, whole_number
from emel.cli.models import locate
from emel.cli.terminal import UsageError, write_out

if TYPE_CHECKING:
    import argparse

    from emel.cli.footprint import Footprint
    from emel.engine.forecast import Forecast
    from emel.gguf import GgufFile

SHOWN_ELEMENTS = 4
SHOWN_CHARACTERS = 160


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.usage = "emel inspect [options] [MODEL]"
    parser.add_argument("words", nargs="?", metavar="MODEL", help="a .gguf file or a name (default: the default model)")
    parser.add_argument("--json", action="store_true", help="everything as one JSON object")
    parser.add_argument("--full", action="store_true", help="whole arrays and texts, however long")
    parser.add_argument("-c", "--ctx-size", type=whole_number(1), metavar="N", help="context of the memory estimate")
    parser.add_argument(
        "--memory", type=memory_amount, metavar="AMOUNT", help="what would be streamed, within 2GiB or 50%%"
    )
    add_model(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints metadata, tensors and the memory estimate."""
    from emel.cli.footprint import estimate
    from emel.gguf import open_gguf

    flagged = chosen_model(arguments)
    if flagged and arguments.words:
        raise UsageError(f"unexpected argument {arguments.words!r}: the model is given by a flag")
    with open_gguf(locate(arguments.words or flagged, offline=arguments.offline)) as file:
        _check_context(file, arguments.ctx_size)
        contexts = [arguments.ctx_size] if arguments.ctx_size else None
        found = _forecast(file, arguments.memory, arguments.ctx_size) if arguments.memory else None
        write = _write_json if arguments.json else _write_tables
        least = least_bytes(file, arguments.ctx_size)
        write(file, estimate(file, contexts), found, least, full=arguments.full)
    return 0


def _check_context(file: GgufFile, n_ctx: int | None) -> None:
    """RequestError for more than the model was trained for, which it could not be loaded with either."""
    from emel.engine.session import context_size

    trained = file.metadata.get_int(f"{file.metadata.get_str('general.architecture', '')}.context_length", 0)
    if trained > 0:
        context_size(n_ctx, trained)


def _forecast(file: GgufFile, memory: str, n_ctx: int | None) -> Forecast:
    from emel.engine.forecast import forecast

    return forecast(file, memory, n_ctx)


def least_bytes(file: GgufFile, n_ctx: int | None) -> int | None:
    """The smallest `--memory` that works; None for a model that does not run."""
    from emel.engine.forecast import least_memory
    from emel.errors import ModelLoadError

    try:
        return least_memory(file, n_ctx)
    except ModelLoadError:
        return None


def forecast_lines(found: Forecast) -> list[str]:
    """What a budget makes of a model, in words."""
    lines = [f"weights in memory {in_mb(found.weights_bytes).strip()}, a context of {found.n_ctx:,} tokens"]
    if not found.streamed_bytes_per_token:
        return [*lines, "nothing is streamed"]
    line = f"each token reads {in_mb(found.streamed_bytes_per_token).strip()} of the file"
    if found.read_bytes_per_second and found.tokens_per_second_at_most:
        line += f", at {in_mb(found.read_bytes_per_second).strip()}/s: at most {found.tokens_per_second_at_most:,.2g}"
        line += " tokens/s; requests at a time share what is read"
    return [*lines, line]


def _write_tables(
    file: GgufFile, footprint: Footprint, found: Forecast | None, least: int | None, *, full: bool
) -> None:
    n_values = sum(tensor.rows * tensor.cols for tensor in file.tensors.values())
    lines = [f"{file.path}", f"GGUF version {file.version}, {len(file.tensors)} tensors, {n_values:,} values", ""]
    lines.append(f"metadata ({len(file.metadata)})")
    for key in file.metadata:
        value = _in_words(file.metadata[key], full=full)
        lines.append(f"  {_printable(key)}  {file.metadata.type_name(key)}  {value}")
    lines += ["", f"tensors ({len(file.tensors)})"]
    width = max((len(_printable(name)) for name in file.tensors), default=0)
    for tensor in file.tensors.values():
        shape = " x ".join(map(str, tensor.shape))
        lines.append(
            f"  {_printable(tensor.name):{width}}  {tensor.type.name:<7}  {shape:>16}  {tensor.n_bytes:>13,} B"
        )
    lines += ["", "memory"]
    lines.append(f"  weights in the file   {in_mb(footprint.file_bytes)}")
    if footprint.packed_bytes is not None:
        lines.append(f"  weights when loaded   {in_mb(footprint.packed_bytes)}")
    if footprint.unsupported:
        lines.append(f"  types not run yet     {', '.join(footprint.unsupported)}")
    for n_ctx, n_bytes in footprint.kv_bytes.items():
        lines.append(f"  context of {n_ctx:<9,}  {in_mb(n_bytes)}")
    if least is not None:
        lines.append(f"  least that works      {in_mb(least)}  (--memory {least})")
    if found is not None:
        lines += ["", f"within {in_mb(found.budget_bytes).strip()}"]
        lines += [f"  {line}" for line in forecast_lines(found)]
    write_out("\n".join(lines) + "\n")


def _write_json(file: GgufFile, footprint: Footprint, found: Forecast | None, least: int | None, *, full: bool) -> None:
    import dataclasses
    import json

    content = {
        "path": str(file.path),
        "version": file.version,
        "metadata": {
            key: {"type": file.metadata.type_name(key), "value": _plain(file.metadata[key], full=full)}
            for key in file.metadata
        },
        "tensors": [
            {
                "name": tensor.name,
                "type": tensor.type.name,
                "shape": list(tensor.shape),
                "offset": tensor.offset,
                "n_bytes": tensor.n_bytes,
            }
            for tensor in file.tensors.values()
        ],
        "memory": dataclasses.asdict(footprint) | {"least_bytes": least},
    }
    if found is not None:
        content["within"] = dataclasses.asdict(found) | {"tokens_per_second_at_most": found.tokens_per_second_at_most}
    write_out(json.dumps(content, indent=2) + "\n")


def in_mb(n_bytes: float) -> str:
    """Bytes as megabytes (10^6), right-aligned."""
    return f"{n_bytes / 1e6:>10,.1f} MB"


def _printable(name: str) -> str:
    """A name from the file as it is, or quoted and escaped: a file must not send codes to the terminal."""
    return name if name.isprintable() else repr(name)


def _elements(value: Any, n_shown: int) -> list[Any]:
    """The first elements of a metadata array; strings that are not UTF-8 with U+FFFD."""
    n_shown = min(n_shown, len(value))
    if hasattr(value, "bytes_at"):
        return [value.bytes_at(index).decode("utf-8", "replace") for index in range(n_shown)]
    return [value[index] for index in range(n_shown)]


def _plain(value: Any, *, full: bool) -> Any:
    """A metadata value as JSON has it: arrays cut to their first elements unless `full`, infinities as text."""
    if isinstance(value, float):
        return _finite(value)
    if isinstance(value, str | int):
        return value
    elements = [_finite(element) for element in _elements(value, len(value) if full else SHOWN_ELEMENTS)]
    return elements if full else {"count": len(value), "first": elements}


def _finite(value: Any) -> Any:
    # JSON has neither infinities nor NaN.
    return str(value) if isinstance(value, float) and (value - value != 0) else value


def _in_words(value: Any, *, full: bool) -> str:
    if isinstance(value, str):
        shown = repr(value)
        return shown if full or len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}... ({len(value)})"
    if isinstance(value, float | int):
        return f"{value:g}" if isinstance(value, float) else str(value)
    elements = [repr(element) for element in _elements(value, len(value) if full else SHOWN_ELEMENTS)]
    more = f", ... ({len(value):,})" if len(elements) < len(value) else ""
    return f"[{', '.join(elements)}{more}]"
