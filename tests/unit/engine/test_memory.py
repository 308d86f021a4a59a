"""How many blocks a session gets: no more than a share of the memory there is, whoever limits that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.engine.memory import machine_bytes, n_blocks_for
from emel.gguf import open_gguf
from emel.memory.storage import KvGeometry
from emel.model.loader import describe_file

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=[None, 1 << 20])
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int | None:
    found: int | None = request.param
    monkeypatch.setattr("emel.engine.memory.read_group_limit", lambda: found)
    return found


def test_memory_of_the_machine_is_what_its_control_group_allows(limit: int | None) -> None:
    assert machine_bytes() == limit if limit is not None else machine_bytes() > 1 << 26


def test_blocks_are_a_share_of_it_but_a_whole_sequence_at_least(limit: int | None, tiny_path: Path) -> None:
    with open_gguf(tiny_path) as file:
        parameters = describe_file(file).parameters
    geometry = KvGeometry(parameters.n_kv_layers, parameters.heads.n_kv_heads, parameters.heads.head_dim)
    n_ctx, n_rows = 4096, 8
    usual = 256 + (n_rows - 1) * 64
    share = (1 << 18) // geometry.bytes_per_block
    assert n_blocks_for(parameters, n_ctx, n_rows) == (usual if limit is None else max(257, share))
