"""The gated short convolution: near float64, and the same bits in any chunks, batches and lanes; its state is safe."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from emel._native import LIBRARY, abi
from emel._native.abi import OpKind
from native.small_plan import SmallPlan

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from emel.kernel.pool import LanePool

    Array = NDArray[np.float32]

EPSILON = 2.0**-23
N_LAYERS, N_SLOTS = 2, 5


class ConvPlan(SmallPlan):
    """SHORT_CONV in state layer 1 of 2."""

    def __init__(self, taps: Array, bias: Array | None, isa: int, *, max_tokens: int = 41, n_more: int = 0) -> None:
        """n_more: products that are kept besides those that the next token needs."""
        super().__init__(isa, max_tokens=max_tokens, max_sequences=4, n_blocks=16)
        self.n_taps, self.n = taps.shape
        self.n_kept = max(self.n_taps - 1 + n_more, 1)
        self.desc.n_state_layers, self.desc.n_slots = N_LAYERS, N_SLOTS
        self.desc.state_width = self.n_kept * self.n
        self.x, self.out = self.place(max_tokens * self.n * 12), self.place(max_tokens * self.n * 4)
        weights = {0: self.vector(taps.ravel())} | ({} if bias is None else {1: self.vector(bias)})
        self.add(
            OpKind.SHORT_CONV, in_=[self.x], out=[self.out], weight=weights, dim=[self.n, self.n_taps, 1, self.n_kept]
        )
        self.create()

    def convolve(self, pool: LanePool, x: Array, **arrays: ArrayLike) -> Array:
        """(n_tokens, n) for x (n_tokens, 3n)."""
        self.write(self.x, x)
        self.run(pool, len(x), **{"slots": [2, 0, 4, 1], "block_table": np.arange(16).reshape(4, 4), **arrays})
        return self.read(self.out, (len(x), self.n))


def random_case(n: int, n_taps: int, n_tokens: int, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed + n)
    shapes = [(n_tokens, 3 * n), (n_taps, n), (n,)]
    x, taps, bias = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return x, taps, bias


def in_chunks(plan: ConvPlan, pool: LanePool, x: Array, chunks: list[int], sequence: int = 0) -> Array:
    out, at = [], 0
    for n in chunks:
        positions, sequences = range(at, at + n), [sequence] * n
        out.append(plan.convolve(pool, x[at : at + n], positions=positions, sequences=sequences))
        at += n
    assert at == len(x)
    return np.concatenate(out)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 32, 100])
@pytest.mark.parametrize("n_taps", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("has_bias", [False, True])
def test_short_conv_is_near_float64_and_the_same_in_any_chunks(
    n: int, n_taps: int, has_bias: bool, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    x, taps, bias = random_case(n, n_taps, 40)
    given = bias if has_bias else None
    b, c, values = np.split(x.astype(np.float64), 3, axis=1)
    products = np.concatenate([np.zeros((n_taps - 1, n)), b * values])
    parts = [products[j : j + 40] * taps[j] for j in range(n_taps)]
    exact = c * (sum(parts) + (bias if has_bias else 0))
    size = np.abs(c) * (sum(np.abs(part) for part in parts) + np.abs(bias))
    with ConvPlan(taps, given, routes["scalar"]) as plan:
        whole = in_chunks(plan, lanes[1], x, [40])
    assert (np.abs(whole - exact) <= (n_taps + 3) * EPSILON * size).all()
    for isa in routes.values():
        with ConvPlan(taps, given, isa, n_more=n_taps) as plan:
            for pool in lanes.values():
                for chunks in ([40], [1] * 40, [7, 1, 2, 30], [3] * 13 + [1]):
                    assert np.array_equal(in_chunks(plan, pool, x, chunks), whole)


def test_sequences_in_one_batch_keep_states_of_their_own(routes: dict[str, int], lanes: dict[int, LanePool]) -> None:
    """Fed together in uneven pieces, with slots in no order, each gets its solo bits."""
    x, taps, bias = random_case(37, 3, 24)
    sequences = [x + np.float32(i) for i in range(4)]
    with ConvPlan(taps, bias, 0) as plan:
        solo = [in_chunks(plan, lanes[1], each, [24]) for each in sequences]
    for isa in routes.values():
        with ConvPlan(taps, bias, isa) as plan:
            done = [0] * 4
            got: list[list[Array]] = [[] for _ in range(4)]
            for counts in ([1, 2, 5, 0], [3, 0, 1, 20], [20, 1, 1, 1], [0, 21, 17, 3]):
                spans = [(i, done[i], done[i] + n) for i, n in enumerate(counts) if n]
                out = plan.convolve(
                    lanes[3],
                    np.concatenate([sequences[i][begin:end] for i, begin, end in spans]),
                    positions=np.concatenate([np.arange(begin, end) for _, begin, end in spans]),
                    sequences=np.concatenate([np.full(end - begin, i) for i, begin, end in spans]),
                )
                at = 0
                for i, begin, end in spans:
                    got[i].append(out[at : at + end - begin])
                    at += end - begin
                    done[i] = end
            assert done == [24] * 4
            assert all(np.array_equal(np.concatenate(got[i]), solo[i]) for i in range(4))


def test_the_state_is_the_last_products_of_its_layer_and_slot(lanes: dict[int, LanePool]) -> None:
    x, taps, _ = random_case(20, 3, 9)
    with ConvPlan(taps, None, 0) as plan:
        before = plan.state.copy()
        in_chunks(plan, lanes[3], x, [9], sequence=2)
        state = plan.state.view(np.float32).reshape(N_SLOTS, N_LAYERS, 2, 20)
        products = x[:, :20] * x[:, 40:]
        assert np.array_equal(state[4, 1], products[[8, 7]])  # position 8 lies in row 0 of 2
        plan.state.reshape(N_SLOTS, N_LAYERS, 160)[4, 1] = 0xFF
        assert np.array_equal(plan.state, before)  # all else is as it was


@pytest.mark.parametrize(("n_taps", "n_more"), [(3, 16), (4, 5), (1, 3), (16, 1)])
def test_a_run_may_begin_as_far_back_as_products_are_kept(
    n_taps: int, n_more: int, routes: dict[str, int], lanes: dict[int, LanePool]
) -> None:
    """Tokens that turn out to be others leave no trace, wherever in the rows they lie, also at the start."""
    x, taps, bias = random_case(37, n_taps, 40)
    wrong = x[::-1].copy()
    with ConvPlan(taps, bias, 0) as plan:
        whole = in_chunks(plan, lanes[1], x, [40])
    for isa in routes.values():
        with ConvPlan(taps, bias, isa, n_more=n_more) as plan:
            for begin in range(40):
                n = min(n_more, 40 - begin)
                positions, sequences = range(begin, begin + n), [1] * n
                plan.convolve(lanes[3], wrong[begin : begin + n], positions=positions, sequences=sequences)
                out = plan.convolve(lanes[3], x[begin : begin + 1], positions=[begin], sequences=[1])
                assert np.array_equal(out[0], whole[begin])


def test_position_0_forgets_what_the_slot_held(lanes: dict[int, LanePool]) -> None:
    x, taps, bias = random_case(16, 4, 12)
    with ConvPlan(taps, bias, 0) as plan:  # the state starts as NaN
        first = in_chunks(plan, lanes[1], x, [5, 7])
        assert np.isfinite(first).all()
        assert np.array_equal(in_chunks(plan, lanes[1], x, [12]), first)


def test_a_value_that_is_not_finite_stays_in_its_sequence_and_channel(lanes: dict[int, LanePool]) -> None:
    x, taps, bias = random_case(20, 3, 8)
    with ConvPlan(taps, bias, 0) as plan:
        clean = in_chunks(plan, lanes[1], x, [8])
        x[2, 5] = np.nan
        out = in_chunks(plan, lanes[1], x, [8])
    assert np.isnan(out[2:5, 5]).all()
    out[2:5, 5] = clean[2:5, 5]
    assert np.array_equal(out, clean)


def refusal(plan: SmallPlan) -> str:
    assert plan.try_create() != 0
    return str(LIBRARY.emel_last_error().decode())


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"dim": (0, 0)}, "dim[0] is 0, allowed 16777216"),
        ({"dim": (1, 0)}, "dim[1] is 0, allowed 16"),
        ({"dim": (1, 17)}, "dim[1] is 17, allowed 16"),
        ({"dim": (3, 1)}, "dim[3] is 1, allowed 2"),
        ({"dim": (3, 3)}, "state of a slot is 60, allowed 40"),
        ({"dim": (1, 2)}, "weight columns is 60, allowed 40"),
        ({"dim": (2, 2)}, "dim[2] is 2, allowed 2"),
        ({"weight": (1, 0)}, "weight columns is 60, allowed 20"),
        ({"weight": (0, abi.NO_WEIGHT)}, "weight index is 4294967295"),
        ({"in_": (0, abi.NONE)}, "in[0] is"),
        ({"out": (0, abi.NONE)}, "out[0] is"),
        ({"flags": 1}, "output rows flag is 1, allowed 0"),
    ],
)
def test_a_damaged_record_is_refused(fields: dict[str, tuple[int, int] | int], text: str) -> None:
    with ConvPlan(np.ones((3, 20), np.float32), None, 0) as plan:
        plan.close()
        for name, value in fields.items():
            if isinstance(value, tuple):
                getattr(plan.ops[0], name)[value[0]] = value[1]
            else:
                setattr(plan.ops[0], name, value)
        assert text in refusal(plan)


@pytest.mark.parametrize("changes", [{"state_width": 0}, {"n_slots": 0}, {"n_slots": 2**32 - 1, "state_width": 2**31}])
def test_a_state_of_no_size_is_refused(changes: dict[str, int]) -> None:
    with ConvPlan(np.ones((3, 20), np.float32), None, 0) as plan:
        plan.close()
        for name, value in changes.items():
            setattr(plan.desc, name, value)
        assert "slots is empty or too large" in refusal(plan)


def test_a_batch_without_its_state_is_refused(lanes: dict[int, LanePool]) -> None:
    with ConvPlan(np.ones((3, 20), np.float32), None, 0) as plan:
        for name, value in (("state", None), ("slots", None), ("state_bytes", 1599), ("state", 32)):
            batch = plan.batch(1, slots=[0, 0, 0, 0])
            wanted = batch.record.state + 32 if value == 32 else value
            setattr(batch.record, name, wanted)
            assert LIBRARY.emel_plan_run(plan.handle, lanes[1].handle, batch.record, None) == 4
            assert "the plan needs 1600 aligned to 64, and slots" in LIBRARY.emel_last_error().decode()
        for slot in (-1, N_SLOTS):
            batch = plan.batch(1, slots=[slot])
            assert LIBRARY.emel_plan_run(plan.handle, lanes[1].handle, batch.record, None) == 4
            assert f"sequence 0 has its state in slot {slot} of 5" in LIBRARY.emel_last_error().decode()
