"""How the benchmark talks to an engine in a process of its own: one JSON object a line, on its stdin and stdout.

    child   {"ready": {"engine": "EMEL", "version": "0.1.0", "route": "avx2", "n_vocab": 49152}}     once, when loaded
    parent  {"prompt_ids": [5, 17], "n_decode": 128}
    child   {"timings": {"prefill_seconds": 0.1, "decode_seconds": 0.7, "peak_bytes": 150000000}}
    child   {"error": "the text of what went wrong"}                                 in place of either of its lines

The child answers requests until its stdin ends.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO, TypeVar

from emel.errors import EmelError
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
E = TypeVar("E", bound="Described")


class LaneError(EmelError):
    """An engine's process failed, ended, or said something that is not the protocol."""


@dataclass(frozen=True, slots=True)
class Ready:
    """What an engine says of itself once its model is loaded."""

    engine: str
    version: str
    route: str
    n_vocab: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of one run. Prefill ends when the last prompt token's logits are there, decode when its last token is.

    `stalled_seconds` are those of the decode that waited for weights to be read, `expert_bytes` what was read of
    experts, `missing_expert_bytes` the size of those chosen that were not in memory, where the engine knows them.
    `peak_bytes` is the most memory the process had resident so far, mapped files included; `serve` fills it in. 0 where
    the system does not say.
    """

    prefill_seconds: float
    decode_seconds: float
    peak_bytes: float = field(default=0, compare=False)
    stalled_seconds: float = 0
    expert_bytes: float = 0
    missing_expert_bytes: float = 0


class Described(Protocol):
    """What every lane serves."""

    def describe(self) -> Ready:
        """The engine's own words."""


class Engine(Described, Protocol):
    """What a lane of the suite `generation` serves."""

    def measure(self, prompt_ids: Sequence[int], n_decode: int) -> Timings:
        """Forgets everything, prefills exactly these tokens, then takes n_decode (0 or more) greedy steps."""


def encode_request(prompt_ids: Sequence[int], n_decode: int) -> str:
    """The parent's line."""
    return json.dumps({"prompt_ids": list(prompt_ids), "n_decode": n_decode}) + "\n"


def decode_ready(line: str) -> Ready:
    """The child's first line; LaneError when it is an error or something else."""
    fields = decode_field(line, "ready", dict)
    try:
        return Ready(**fields)
    except TypeError as error:
        raise LaneError(f"expected a line that describes the engine, got {line.strip()!r}") from error


def decode_timings(line: str) -> Timings:
    """The child's answer; LaneError when it is an error or something else."""
    fields = decode_field(line, "timings", dict)
    try:
        return Timings(**{name: float(value) for name, value in fields.items()})
    except (TypeError, ValueError) as error:
        raise LaneError(f"expected a line of timings, got {line.strip()!r}") from error


def decode_field(line: str, kind: str, type_: type[T]) -> T:
    """What a child's line says of `kind`; LaneError when it tells of an error, or is no such line."""
    try:
        message = json.loads(line)
    except ValueError as error:
        raise LaneError(f"expected a line of JSON, got {line.strip()!r}") from error
    if isinstance(message, dict) and isinstance(message.get("error"), str):
        raise LaneError(message["error"])
    value = message.get(kind) if isinstance(message, dict) else None
    if not isinstance(value, type_):
        raise LaneError(f"expected a line with {kind!r}, got {line.strip()!r}")
    return value


def serve(load: Callable[[], Engine], requests: TextIO, answers: TextIO) -> int:
    """The child's side: loads, describes, measures until `requests` or its listener ends. Returns the exit code."""
    return serve_answers(load, _measured, requests, answers)


def serve_answers(
    load: Callable[[], E], answer: Callable[[E, dict[str, Any]], dict[str, object]], requests: TextIO, answers: TextIO
) -> int:
    """As `serve`, for engines whose answers to requests `answer` gives."""

    def say(message: dict[str, object]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        engine = load()
        say({"ready": asdict(engine.describe())})
        for line in requests:
            say(answer(engine, json.loads(line)))
    except BrokenPipeError:  # the benchmark was ended: nobody to tell
        return 1
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}" if str(error) else type(error).__name__})
        return 1
    return 0


def _measured(engine: Engine, request: dict[str, Any]) -> dict[str, object]:
    timings = engine.measure(request["prompt_ids"], request["n_decode"])
    return {"timings": asdict(replace(timings, peak_bytes=peak_resident_bytes()))}


def peak_resident_bytes(status: Path = Path("/proc/self/status")) -> int:
    """The most memory this process had resident since its program was started; 0 where the system does not say."""
    try:
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            # Not getrusage's figure: that is inherited from the process that started this one.
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def private_stdout() -> TextIO:
    """Stdout for the protocol alone: what libraries print to descriptor 1 goes to stderr from now on."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return answers
