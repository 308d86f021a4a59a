"""Invariant: a draft model, good or bad, changes no answer, and holds nothing when its requests are over."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import emel
from emel.engine.budget import Grant, SessionSizes
from emel.engine.draft_share import share_for_draft
from emel.engine.needs import needed_bytes
from emel.engine.options import LoadOptions
from emel.errors import ModelLoadError, ModelNotFoundError, RequestError
from emel.memory.kv import KvCache
from emel.model.loader import LoadedModel
from model.every_model import EVERY_MODEL
from model.tiny_llama import Geometry, write_tiny_llama
from model.tiny_models import write_tiny_model
from unit.engine.conftest import N_CTX, n_open
from unit.engine.test_speculation import FreeRows, outcome, plain, random_request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 40, "logprobs": 2, "digests": True}


@pytest.fixture(scope="module")
def other_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the same vocabulary with other weights and a shorter context."""
    path = tmp_path_factory.mktemp("draft") / "other.gguf"
    geometry = Geometry(n_layers=1, d_model=64, n_heads=2, n_kv_heads=1, d_ff=64, n_ctx=64)
    write_tiny_llama(path, geometry, "Q8_0", seed=5)
    return path


def load_with(path: Path, draft: Path, **options: Any) -> emel.Model:
    model = emel.load(path, draft=draft, **options)
    model.engine.wave.context.costs = FreeRows()
    return model


@pytest.fixture(scope="module")
def drafted(tiny_path: Path) -> Iterator[emel.Model]:
    """The model is its own draft: every greedy guess is right."""
    with load_with(tiny_path, tiny_path, n_threads=1, n_lanes=3) as model:
        yield model
        assert n_open(model) == n_open_drafts(model) == 0


def n_open_drafts(model: emel.Model) -> int:
    drafter = model.engine.drafter
    assert drafter is not None
    memory = drafter.memory
    assert isinstance(memory, KvCache)
    return model.engine.between_steps(lambda: sum(state is not None for state in memory._sequences))


def test_model_that_is_its_own_draft_guesses_all_greedy_tokens(drafted: emel.Model) -> None:
    answer = drafted.generate_ids([70, 90, 65, 81, 68], **GREEDY)
    assert answer.n_accepted_tokens == answer.n_draft_tokens > 20
    assert outcome(answer) == outcome(plain(drafted, [70, 90, 65, 81, 68], GREEDY))
    assert n_open_drafts(drafted) == 0


@pytest.mark.parametrize("seed", range(4))
def test_answers_are_those_without_a_draft_model(drafted: emel.Model, seed: int) -> None:
    random = Random(seed)
    requests = [random_request(random, drafted.n_vocab) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda each: drafted.generate_ids(each[0], **each[1]), requests))
    for (ids, options), answer in zip(requests, answers, strict=True):
        assert outcome(answer) == outcome(plain(drafted, ids, options))
    assert n_open(drafted) == n_open_drafts(drafted) == 0


def test_bad_draft_model_changes_nothing(tiny_path: Path, other_path: Path) -> None:
    """Also where its context ends before the model's."""
    with load_with(tiny_path, other_path, n_threads=2) as model:
        for ids in ([70, 71, 72] * 4, [80] * 55, [66] * 90):
            answer = model.generate_ids(ids, temperature=1.0, seed=4, logprobs=2, digests=True)
            expected = plain(model, ids, {"temperature": 1.0, "seed": 4, "logprobs": 2, "digests": True})
            assert outcome(answer) == outcome(expected)
        counters = model.wave.counters
        assert counters.n_accepted_tokens < counters.n_draft_tokens
        assert n_open_drafts(model) == 0


def test_prompt_longer_than_a_run_of_the_draft_model_is_read_in_several(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emel.engine.draft_share.DRAFT_SIZES", SessionSizes(N_CTX, 7, 1))
    with load_with(tiny_path, tiny_path, n_threads=1, n_lanes=2) as model:
        answer = model.generate_ids([65 + each % 20 for each in range(40)], **GREEDY)
        assert answer.n_accepted_tokens == answer.n_draft_tokens > 20


def test_draft_model_that_fails_is_done_without(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with load_with(tiny_path, tiny_path, n_threads=1) as model:
        expected = plain(model, [70, 71], GREEDY)
        drafter = model.engine.drafter
        assert drafter is not None

        def refuse(_batch: object) -> None:
            raise RuntimeError("the run was refused")

        monkeypatch.setattr(drafter._model, "graph", type("Refusing", (), {"compute": staticmethod(refuse)}))
        answer = model.generate_ids([70, 71], **GREEDY)
        assert outcome(answer) == outcome(expected)
        assert answer.n_draft_tokens == 0
        assert n_open_drafts(model) == 0


def test_guesses_that_cost_more_than_a_step_are_not_made(tiny_path: Path) -> None:
    with load_with(tiny_path, tiny_path, n_threads=1) as model:
        assert model.engine.drafter is not None
        model.engine.drafter._model.guess_seconds = 100.0
        assert model.generate_ids([70, 71], **GREEDY).n_draft_tokens == 0


def test_draft_model_is_part_of_the_budget(tiny_path: Path) -> None:
    budget = 64 << 20
    share = share_for_draft(tiny_path, Grant(budget, budget), LoadOptions(n_lanes=2))
    assert share.rest == Grant(budget - share.n_bytes, budget - share.n_bytes)
    with (
        load_with(tiny_path, tiny_path, n_threads=1, n_lanes=2, memory=budget) as model,
        emel.load(tiny_path, n_threads=1, n_lanes=2, memory=budget - share.n_bytes) as alone,
    ):
        assert (model.engine.n_ctx, model.engine.chunk) == (alone.engine.n_ctx, alone.engine.chunk)
        assert model.engine.memory.n_blocks == alone.engine.memory.n_blocks
        drafter = model.engine.drafter
        assert drafter is not None
        assert drafter.memory.n_blocks == share.sizes.n_blocks
        loaded = drafter._opened[0]
        assert isinstance(loaded, LoadedModel)
        assert isinstance(drafter.memory, KvCache)
        taken = loaded.weights.n_bytes + drafter.memory.n_bytes
        assert 0 < taken <= share.n_bytes
        answer = model.generate_ids([70, 90, 65, 81, 68], **GREEDY)
        assert answer.n_accepted_tokens == answer.n_draft_tokens > 20
        assert outcome(answer) == outcome(plain(model, [70, 90, 65, 81, 68], GREEDY))


@pytest.mark.parametrize("n_ctx", [None, 64])
def test_the_least_budget_that_an_error_names_has_the_draft_model_in_it(tmp_path: Path, n_ctx: int | None) -> None:
    main, draft = tmp_path / "main.gguf", tmp_path / "draft.gguf"
    write_tiny_model(main, EVERY_MODEL["phi3"](), "Q4_K")
    write_tiny_model(draft, EVERY_MODEL["llama"](), "Q4_K")
    options = LoadOptions(n_ctx=n_ctx, n_lanes=2, draft=draft)

    def refused(memory: int) -> int:
        for ask in (
            lambda: emel.load(main, memory=memory, n_ctx=n_ctx, n_lanes=2, draft=draft, n_threads=1),
            lambda: needed_bytes(main, Grant(memory, memory), options),
        ):
            with pytest.raises(ModelLoadError, match=rf"^{memory} bytes of memory are too few: ") as caught:
                ask()
        [least] = re.findall(
            r"few: (\d+) are the least with a context of \d+ tokens and a draft model", str(caught.value)
        )
        return int(least)

    least = refused(share_for_draft(draft, Grant(1 << 40, 1), options).n_bytes + 1000)
    assert refused(least - 1) == least
    assert needed_bytes(main, Grant(least, least), options) <= least
    with emel.load(main, memory=least, n_ctx=n_ctx, n_lanes=2, draft=draft, n_threads=1) as model:
        assert model.generate_ids([70, 71], **GREEDY).token_ids


def test_what_a_model_needs_has_its_draft_model_in_it(tiny_path: Path) -> None:
    """So models that share a budget, as those of a server, are granted what their draft models take, too."""
    grant = Grant(64 << 20, 64 << 20)
    share = share_for_draft(tiny_path, grant, LoadOptions(n_lanes=2, draft=tiny_path))
    needed = needed_bytes(tiny_path, grant, LoadOptions(n_lanes=2, draft=tiny_path))
    assert needed == share.n_bytes + needed_bytes(tiny_path, share.rest, LoadOptions(n_lanes=2))
    assert needed <= grant.n_bytes
    load_with(tiny_path, tiny_path, n_threads=1, n_lanes=2, memory=Grant(needed, grant.whole)).close()


def test_draft_model_that_leaves_nothing_is_refused(tiny_path: Path) -> None:
    needed = share_for_draft(tiny_path, Grant(1 << 40, 1 << 20), LoadOptions()).n_bytes
    hint = "give more memory, or load without draft"
    with pytest.raises(RequestError, match=rf"^the draft model takes {needed} of 1000 bytes of memory\nhint: {hint}$"):
        share_for_draft(tiny_path, Grant(1000, 1 << 20), LoadOptions())


def test_cancelled_and_closed_with_drafts_under_way(tiny_path: Path) -> None:
    model = load_with(tiny_path, tiny_path, n_threads=1)
    with model.stream("abc", temperature=0, max_tokens=80) as stream:
        next(stream)
    assert n_open_drafts(model) == 0
    stream = model.stream("abc", temperature=0, max_tokens=80)
    next(stream)
    model.close()


def with_tokens(path: Path, source: Path, change: str) -> Path:
    """A copy of a model with one token spelled otherwise."""
    data = source.read_bytes()
    assert data.count(change.encode()) > 0
    path.write_bytes(data.replace(change.encode(), b"?" * len(change)))
    return path


def test_model_that_cannot_guess_is_refused(tiny_path: Path, tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "large.gguf", EVERY_MODEL["qwen3"](), "Q8_0")
    renamed = with_tokens(tmp_path / "renamed.gguf", tiny_path, "<unused0>")
    for path, message in (
        (tmp_path / "large.gguf", r"the draft model has 500 tokens, the model \d+: a draft model needs the same"),
        (renamed, "has as many tokens as the model, but others: it needs the same vocabulary"),
    ):
        with pytest.raises(RequestError, match=message):
            emel.load(tiny_path, draft=path, n_threads=1)
    with pytest.raises(ModelNotFoundError):
        emel.load(tiny_path, draft=tmp_path / "none.gguf", n_threads=1)
