from __future__ import annotations

from array import array
from typing import Any

import pytest

from emel._native import LIBRARY, NativeError
from emel.kernel.buffers import address_of
from emel.kernel.sampling import NativeSampler, Step

LOGITS = array("f", [0.0, 3.0, 1.0, 2.0, -1.0])


def test_sampler_draws_by_seed_and_position_alone() -> None:
    one, two = NativeSampler(5, temperature=1.0, seed=42), NativeSampler(5, temperature=1.0, seed=42)
    drawn = [one.choose(address_of(LOGITS), position) for position in range(50)]
    assert drawn == [two.choose(address_of(LOGITS), position) for position in range(50)]
    assert [one.choose(address_of(LOGITS), position) for position in reversed(range(50))] == drawn[::-1]
    other = NativeSampler(5, temperature=1.0, seed=43)
    assert drawn != [other.choose(address_of(LOGITS), position) for position in range(50)]
    assert len(set(drawn)) > 1


def test_sampler_top_k_of_one_is_the_largest() -> None:
    sampler = NativeSampler(5, temperature=2.0, top_k=1, steps=[Step.TOP_K, Step.TEMPERATURE])
    assert {sampler.choose(address_of(LOGITS), position) for position in range(20)} == {1}


def test_sampler_takes_seeds_of_64_bits() -> None:
    assert NativeSampler(5, temperature=1.0, seed=-1)._parameters.seed == 2**64 - 1


def test_sampler_allocates_nothing_natively() -> None:
    sampler = NativeSampler(5, temperature=1.0)
    before = LIBRARY.emel_allocation_count()
    for position in range(10):
        sampler.choose(address_of(LOGITS), position)
    assert LIBRARY.emel_allocation_count() == before


def test_sampler_refuses_bad_parameters() -> None:
    with pytest.raises(ValueError, match="cannot sample from 0 logits"):
        NativeSampler(0, temperature=1.0)
    faulty: tuple[dict[str, Any], ...] = ({"temperature": -1.0}, {"top_p": 1.5}, {"min_p": -1.0})
    for bad in faulty:
        with pytest.raises(NativeError):
            NativeSampler(5, **{"temperature": 1.0} | bad).choose(address_of(LOGITS), 0)
