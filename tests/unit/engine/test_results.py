from __future__ import annotations

import pytest

from emel.engine.results import Timings


@pytest.mark.parametrize(
    ("timings", "prefill", "decode"),
    [
        (Timings(10, 5, 2.0, 1.0, 2.5), 5.0, 4.0),
        (Timings(10, 1, 2.0, 0.0, 2.5), 5.0, 0.0),
        (Timings(10, 0, 0.0, 0.0, 0.0), 0.0, 0.0),
        (Timings(10, 2, 1.0, 0.0, 0.0), 10.0, 0.0),
    ],
)
def test_speeds_are_zero_where_there_is_nothing_to_divide(timings: Timings, prefill: float, decode: float) -> None:
    assert timings.prefill_tokens_per_second == prefill
    assert timings.decode_tokens_per_second == decode
