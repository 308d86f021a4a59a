"""Invariant: what a session file brings back gives the bits that computing it gives; any other file changes nothing."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import emel
from emel.errors import RequestError
from model.tiny_llama import Geometry, write_tiny_llama
from unit.engine.conftest import N_CTX, n_open

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

IDS = [65 + 7 * each % 26 for each in range(53)]
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 20, "logprobs": 4, "digests": True}


def outcome(completion: emel.Completion) -> tuple[Any, ...]:
    return completion.token_ids, completion.text, completion.logprobs, completion.digests


def test_session_of_one_process_is_found_by_another(tiny_path: Path, tmp_path: Path) -> None:
    with emel.load(tiny_path, n_threads=1) as first:
        expected = first.generate_ids(IDS, cache_prompt=False, **GREEDY)
        first.save_session(tmp_path / "s", IDS)
    with emel.load(tiny_path, n_threads=2) as second:
        assert second.load_session(str(tmp_path / "s")) == IDS
        answer = second.generate_ids(IDS, **GREEDY)
        assert answer.n_cached_tokens == 48
        assert outcome(answer) == outcome(expected)
        longer = second.generate_ids([*IDS, *expected.token_ids], **GREEDY)
        assert longer.n_cached_tokens == 64
        assert outcome(longer) == outcome(
            second.generate_ids([*IDS, *expected.token_ids], cache_prompt=False, **GREEDY)
        )


def test_saved_file_is_the_same_whatever_was_computed_before(model: emel.Model, tmp_path: Path) -> None:
    model.save_session(tmp_path / "cold", IDS)
    model.generate_ids(IDS, max_tokens=1)
    model.save_session(tmp_path / "warm", IDS)
    assert (tmp_path / "cold").read_bytes() == (tmp_path / "warm").read_bytes()
    assert stat.S_IMODE((tmp_path / "cold").stat().st_mode) == 0o600


def test_what_is_no_file_is_refused_and_nobody_waits_for_it(model: emel.Model, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "/dev/zero"):
        with pytest.raises(RequestError, match=r"^cannot restore .*: it is no regular file$"):
            model.load_session(path)
    assert len(model.generate_ids(IDS, max_tokens=2, ignore_eos=True).token_ids) == 2


@pytest.mark.parametrize("n_tokens", [1, 16, N_CTX])
def test_session_of_any_length_comes_back(model: emel.Model, tmp_path: Path, n_tokens: int) -> None:
    ids = (IDS * 2)[:n_tokens]
    model.save_session(tmp_path / "s", ids)
    assert model.load_session(tmp_path / "s") == ids


def test_sessions_are_saved_and_loaded_by_several_threads(tiny_path: Path, tmp_path: Path) -> None:
    with emel.load(tiny_path, n_threads=1) as model, ThreadPoolExecutor(8) as pool:
        saving = [pool.submit(model.save_session, tmp_path / str(n), IDS[:n]) for n in range(20, 28)]
        for each in saving:
            each.result(60)
        loading = [pool.submit(model.load_session, tmp_path / str(n)) for n in range(20, 28)]
        assert [each.result(60) for each in loading] == [IDS[:n] for n in range(20, 28)]


def test_session_is_loaded_while_others_run(model: emel.Model, tmp_path: Path) -> None:
    model.save_session(tmp_path / "s", IDS)
    alone = model.generate("PPPPPPPPP", **GREEDY)
    with model.stream("PPPPPPPPP", **GREEDY) as stream:
        first = next(stream)
        assert model.load_session(tmp_path / "s") == IDS
        rest = "".join(chunk.text for chunk in stream)
    assert first.text + rest == alone.text


def damaged(data: bytes) -> bytes:
    return data[:700] + bytes([data[700] ^ 1]) + data[701:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "it is no saved sequence"),
        (lambda data: b"GGUF" + data[4:], "it is no saved sequence"),
        (lambda data: data[:30], "it is cut off"),
        (lambda data: data[:-1], "it is cut off"),
        (lambda data: data + b"x", "it is too long"),
        (damaged, "its digest is wrong: the file was altered or is damaged"),
    ],
)
def test_file_that_is_not_whole_is_refused(
    model: emel.Model, tmp_path: Path, change: Callable[[bytes], bytes], message: str
) -> None:
    model.save_session(tmp_path / "s", IDS)
    (tmp_path / "s").write_bytes(change((tmp_path / "s").read_bytes()))
    with pytest.raises(RequestError, match=f"^cannot restore .*: {message}"):
        model.load_session(tmp_path / "s")
    assert n_open(model) == 0


def test_session_of_other_weights_is_refused(model: emel.Model, tmp_path: Path) -> None:
    """The other file tells the same of itself: the same names, shapes and types."""
    path = tmp_path / "other.gguf"
    geometry = Geometry(n_layers=1, d_model=64, n_heads=2, n_kv_heads=1, d_ff=64, n_ctx=N_CTX)
    write_tiny_llama(path, geometry, "Q8_0", seed=99)
    with emel.load(path, n_threads=1) as other:
        assert other.fingerprint == model.fingerprint
        other.save_session(tmp_path / "s", IDS)
    with pytest.raises(RequestError, match="another model computed it"):
        model.load_session(tmp_path / "s")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activations": "int8"}, "other activations"),
        ({"kv_type": "q8_0"}, "its keys and values are q8_0, the cache's f16: load with kv_type 'q8_0'"),
        ({"kv_type": "f32"}, "its keys and values are f32, the cache's f16: load with kv_type 'f32'"),
    ],
)
def test_session_computed_in_another_way_is_refused(
    model: emel.Model, tiny_path: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with emel.load(tiny_path, n_threads=1, **options) as other:
        other.save_session(tmp_path / "s", IDS)
        assert other.load_session(tmp_path / "s") == IDS
    with pytest.raises(RequestError, match=message):
        model.load_session(tmp_path / "s")


def test_session_of_another_numerics_version_is_refused(
    model: emel.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("emel.engine.saved_session.numerics_version", lambda: "999")
        model.save_session(tmp_path / "s", IDS)
    with pytest.raises(RequestError, match="numerics version 999 computed it"):
        model.load_session(tmp_path / "s")


def test_session_longer_than_the_context_is_refused(model: emel.Model, tiny_path: Path, tmp_path: Path) -> None:
    model.save_session(tmp_path / "s", IDS)
    with emel.load(tiny_path, n_threads=1, n_ctx=32) as small:
        with pytest.raises(RequestError, match="it has 53 tokens; a sequence of at most 32 can be opened now"):
            small.load_session(tmp_path / "s")
        assert n_open(small) == 0


def test_files_that_cannot_be_had_are_named(model: emel.Model, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"^cannot load a session from .*none: No such file or directory$"):
        model.load_session(tmp_path / "none")
    with pytest.raises(RequestError, match=r"^cannot save a session to .*folder/s: No such file or directory$"):
        model.save_session(tmp_path / "folder" / "s", IDS)
    for path in (3, None, b"s"):
        with pytest.raises(RequestError, match=r"^the path is .*: it must be a str or pathlib.Path$"):
            model.save_session(path, IDS)  # type: ignore[arg-type]


def test_what_cannot_be_computed_leaves_the_file_alone(model: emel.Model, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"before")
    for ids in ([], [10**6], [65] * (N_CTX + 1)):
        with pytest.raises(RequestError):
            model.save_session(tmp_path / "s", ids)
    assert (tmp_path / "s").read_bytes() == b"before"


def test_session_takes_the_place_of_no_device(model: emel.Model, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(RequestError, match=r"cannot save a sequence in place of .*: it is no regular file$"):
            model.save_session(path, IDS)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
