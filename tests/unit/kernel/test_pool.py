from __future__ import annotations

import subprocess
import sys

import pytest

from emel._native import LIBRARY
from emel.kernel.pool import LanePool


@pytest.mark.parametrize("n_lanes", [1, 2, 5])
def test_pool_has_the_lanes_asked_for(n_lanes: int) -> None:
    with LanePool(n_lanes) as pool:
        assert pool.n_lanes == n_lanes
        assert LIBRARY.emel_pool_n_lanes(pool.handle) == n_lanes


@pytest.mark.parametrize("n_lanes", [0, -1, 257])
def test_pool_refuses_other_counts(n_lanes: int) -> None:
    with pytest.raises(ValueError, match=f"a pool cannot have {n_lanes} lanes: 1 to 256 are allowed"):
        LanePool(n_lanes)


def test_pool_is_closed_once() -> None:
    pool = LanePool(2)
    pool.close()
    pool.close()
    with pytest.raises(ValueError, match="this lane pool is closed"):
        _ = pool.handle


def test_pool_is_closed_by_the_context() -> None:
    with LanePool(2) as pool:
        pass
    with pytest.raises(ValueError, match="closed"):
        _ = pool.handle


def test_pool_of_the_parent_neither_runs_nor_hangs_in_a_forked_child() -> None:
    script = """
import os, sys
from emel.kernel.pool import LanePool
pool = LanePool(3)
pool.fork_join()
child = os.fork()
if child == 0:
    try:
        pool.fork_join()
    except ValueError as error:
        assert "before a fork" in str(error), error
        pool.close()
        sys.exit(7)  # an ordinary exit, with finalizers
    sys.exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
pool.fork_join()
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
