"""Where a step of a wave goes: the time of every kind of operation, for numbers of sequences that decode together.

A second plan of the same records is cut behind every operation, and its pieces run one by one, as a step runs them. Of
each the least of many steps counts: what others do on the machine only ever adds. A run that is asked for nothing costs
what the pieces are charged with besides, and is taken off.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from emel.bench.table import render_table
from emel.bench.workload import prompt_ids
from emel.graph.batch import Outputs
from emel.graph.ops import Linear
from emel.graph.plan import Plan
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emel.bench.wavefront import WavePlan
    from emel.engine.session import Session
    from emel.graph.ops import Operation

STEPS_OF_A_RUN = 20


@dataclass(frozen=True, slots=True)
class OperationTimes:
    """Seconds of a step of so many sequences, by kind of operation in the order of the step, and of it as one run."""

    n_sequences: int
    seconds: dict[str, float]
    whole: float


class CutPlan:
    """The plan of a session once more, in pieces of one operation; close it before the session."""

    def __init__(self, session: Session) -> None:
        assembly = session.graph.plan.assembly
        records = type(assembly.records).from_buffer_copy(assembly.records)
        for index, record in enumerate(records):
            record.segment = index
        self._session = session
        self._plan = Plan(replace(assembly, records=records), session.model.weights, session.route.isa)
        self._plan.ensure_arena()
        self.kinds = [kind_of(operation) for operation in assembly.graph.operations]

    def measure(self, n_steps: int, clock: Callable[[], float] = time.perf_counter) -> tuple[list[float], float]:
        """Seconds of each operation on the session's batch, and of all of them in one run; the least of n_steps."""
        batch, pool, plan = self._session.batch, self._session.pool, self._plan
        plan.bind(batch)
        record, n = batch.record, len(self.kinds)
        least, whole, nothing = [float("inf")] * n, float("inf"), float("inf")
        for _ in range(n_steps):
            for index in range(n):
                record.segment_begin, record.segment_end = index, index + 1
                begin = clock()
                plan.run(pool, batch)
                least[index] = min(least[index], clock() - begin)
            record.segment_begin, record.segment_end = n, n
            begin = clock()
            plan.run(pool, batch)
            nothing = min(nothing, clock() - begin)
            record.segment_begin, record.segment_end = 0, n
            begin = clock()
            plan.run(pool, batch)
            whole = min(whole, clock() - begin)
        return [max(seconds - nothing, 0.0) for seconds in least], whole - nothing

    def close(self) -> None:
        """Gives the plan back."""
        self._plan.close()


def kind_of(operation: Operation) -> str:
    """What it is counted as: a matrix product by its matrices, as a layer calls them; all others by their names."""
    if not isinstance(operation, Linear):
        return type(operation).__name__
    names = [part.weight.name.removesuffix(".weight") for part in operation.parts]
    return " ".join(name.split(".", 2)[2] if name.startswith("blk.") else name for name in names)


def measure_operations(
    session: Session, n_sequences: int, n_keys: int, n_steps: int, clock: Callable[[], float] = time.perf_counter
) -> OperationTimes:
    """A step of `n_sequences` sequences, whose tokens see `n_keys` keys each, their own among them."""
    memory, batch = session.memory, session.batch
    prompts = [prompt_ids(n_keys * n_sequences, session.n_vocab)[at::n_sequences] for at in range(n_sequences)]
    rows = [memory.open_with_prefix(prompt, reuse=False)[0] for prompt in prompts]
    plan = CutPlan(session)
    try:
        for row, prompt in zip(rows, prompts, strict=True):
            _read(session, row, prompt[:-1])
        memory.reserve_all([(row, 1) for row in rows])
        batch.clear()
        for row, prompt in zip(rows, prompts, strict=True):
            batch.add_token(prompt[-1], n_keys - 1, row)
        least, whole = plan.measure(n_steps, clock)
    finally:
        plan.close()
        for row in rows:
            memory.close_sequence(row)
    seconds: dict[str, float] = {}
    for kind, each in zip(plan.kinds, least, strict=True):
        seconds[kind] = seconds.get(kind, 0.0) + each
    return OperationTimes(n_sequences, seconds, whole)


def run_operations(plan: WavePlan) -> list[OperationTimes]:
    """Loads the model as the lane of the suite does; a prompt of the plan is as many keys."""
    from emel.engine.options import LoadOptions
    from emel.engine.session import Session

    n_ctx, n_lanes = plan.n_prompt + plan.n_decode, max(plan.sequences)
    options = LoadOptions(n_ctx=n_ctx, n_threads=plan.n_threads, activations=plan.activations, n_lanes=n_lanes)
    session = Session(plan.model, options)
    try:
        n_steps = STEPS_OF_A_RUN * plan.n_runs
        return [measure_operations(session, n, plan.n_prompt, n_steps) for n in plan.sequences]
    finally:
        session.close()


def render_operations(columns: Sequence[OperationTimes]) -> str:
    """A table: a line for each kind of operation, a column for each number of sequences."""
    lines = [[kind, *(f"{1e3 * each.seconds[kind]:.3f}" for each in columns)] for kind in columns[0].seconds]
    lines.append(["all of them", *(f"{1e3 * sum(each.seconds.values()):.3f}" for each in columns)])
    lines.append(["in one run", *(f"{1e3 * each.whole:.3f}" for each in columns)])
    header = ["ms of a step", *(f"{each.n_sequences} sequences" for each in columns)]
    return render_table(header, lines, n_left=1) + "\n"


# ---- inside


def _read(session: Session, row: int, ids: Sequence[int]) -> None:
    for at in range(0, len(ids), session.chunk):
        part = ids[at : at + session.chunk]
        session.memory.reserve_all([(row, len(part))])
        session.batch.clear()
        session.batch.add(part, at, row, outputs=Outputs.NONE)
        session.graph.compute(session.batch)
