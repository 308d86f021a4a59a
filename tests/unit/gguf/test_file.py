"""open_gguf on real files: tensor bytes, closing, lies about size, shrinking files, a failing platform."""

from __future__ import annotations

import errno
import gc
import os
from typing import TYPE_CHECKING, ClassVar

import pytest

from emel.gguf import GgufError, GgufFile, open_gguf
from emel.gguf.reader import ReaderContext, ReaderMachine, ReadFile
from emel.io.errors import SourceError
from emel.io.source import Strategy
from unit.gguf.builder import ARRAY, STRING, U8, Build, entry, tensor, text, u32, u64
from unit.gguf.refusal import cost_of
from unit.io.fakes import FaultyPlatform, n_open_descriptors

if TYPE_CHECKING:
    import mmap
    from pathlib import Path


@pytest.mark.parametrize("strategy", list(Strategy))
def test_file_gives_metadata_and_tensor_bytes(model: Path, strategy: Strategy) -> None:
    with open_gguf(model, strategy=strategy) as file:
        assert file.path == str(model)
        assert (file.version, file.alignment, file.n_bytes) == (3, 32, model.stat().st_size)
        assert file.metadata.get_str("general.architecture") == "llama"
        assert list(file.tensors) == ["w", "b"]
        weight = file.tensor_data("w")
        assert weight == bytes(range(36))
        assert weight.readonly
        assert file.tensor_data("b").cast("f").tolist() == [1.0, 2.0, 3.0]
        assert repr(file) == f"<GgufFile {str(model)!r}: 2 tensors, ready>"


def test_file_names_the_unknown_tensor(model: Path) -> None:
    with open_gguf(str(model)) as file, pytest.raises(KeyError, match="nope"):
        file.tensor_data("nope")


def test_file_closed_gives_no_more_bytes(model: Path) -> None:
    file = open_gguf(model)
    kept = file.tensor_data("w")
    names = file.metadata.get_strings("a.names")
    file.close()
    file.close()
    assert kept == bytes(range(36))
    assert list(names) == ["x", "", "né"]
    for use in (lambda: file.tensor_data("w"), file.verify, file.prefetch, lambda: file.n_bytes):
        with pytest.raises(SourceError, match=r"is closed: open it again$"):
            use()


@pytest.mark.parametrize("strategy", list(Strategy))
def test_file_leaves_nothing_open(model: Path, strategy: Strategy) -> None:
    gc.collect()
    before = n_open_descriptors()
    platform = FaultyPlatform()
    file = open_gguf(model, strategy=strategy, platform=platform)
    file.tensor_data("w")
    file.close()
    del file
    gc.collect()
    platform.assert_nothing_left()
    assert n_open_descriptors() == before


@pytest.mark.parametrize("strategy", list(Strategy))
def test_file_prefetch_advises_the_tensor_data(model: Path, strategy: Strategy) -> None:
    class Recorder(FaultyPlatform):
        ranges: ClassVar[list[tuple[str, int, int]]] = []

        def advise(self, mapping: mmap.mmap, advice: str, offset: int, n_bytes: int) -> None:
            self.ranges.append((advice, offset, n_bytes))

    recorder = Recorder()
    recorder.ranges.clear()
    with open_gguf(model, strategy=strategy, platform=recorder) as file:
        file.prefetch()
        assert file.tensor_data("w") == bytes(range(36))
    # in whole pages: the head of this file lies on the same page as its data
    assert recorder.ranges == ([] if strategy is Strategy.COPY else [("willneed", 0, model.stat().st_size)])


def test_file_prefetch_without_tensors_does_nothing(tmp_path: Path) -> None:
    path = tmp_path / "head.gguf"
    path.write_bytes(Build().head())
    platform = FaultyPlatform()
    with open_gguf(path, platform=platform) as file:
        file.prefetch()
    assert "advise" not in platform.calls


def test_file_metadata_outlives_the_file(model: Path) -> None:
    file = open_gguf(model)
    os.truncate(model, 0)
    assert list(file.metadata.get_strings("a.names")) == ["x", "", "né"]
    assert file.metadata.get_ints("a.ints").tolist() == [1, -2, 3]
    with pytest.raises(SourceError, match="shrank"):
        file.tensor_data("w")
    assert file.metadata.get_ints("a.ints").tolist() == [1, -2, 3]


def test_file_closing_releases_the_mapping_though_metadata_is_kept(model: Path) -> None:
    platform = FaultyPlatform()
    file = open_gguf(model, platform=platform)
    metadata = file.metadata
    file.close()
    platform.assert_nothing_left()
    assert metadata.get_ints("a.ints").tolist() == [1, -2, 3]


def test_file_that_shrinks_is_an_error_not_a_crash(model: Path) -> None:
    file = open_gguf(model)
    size = model.stat().st_size
    os.truncate(model, 64)
    for _ in range(2):
        with pytest.raises(SourceError, match=f"shrank from {size} to 64 bytes while it was in use"):
            file.tensor_data("w")
    file.close()


def test_file_errors_name_the_path(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(GgufError) as caught:
        open_gguf(path)
    assert str(caught.value).startswith(f"{str(path)!r}: not a GGUF file: it starts with b'<htm' instead of b'GGUF'")
    with pytest.raises(SourceError, match="no such file"):
        open_gguf(tmp_path / "none.gguf")


def refuse(path: Path, expected: str) -> None:
    with pytest.raises(GgufError, match=expected):
        open_gguf(path)


LIES = {
    "array of 2^63": (text("k") + u32(ARRAY) + u32(U8) + u64(2**63), "elements of at least 1 bytes, but"),
    "array of a terabyte": (text("k") + u32(ARRAY) + u32(U8) + u64(2**39), "elements of at least 1 bytes, but"),
    "array of 200 MB": (text("k") + u32(ARRAY) + u32(U8) + u64(2 * 10**8), "elements: allowed are at most 16777216"),
    "many strings": (text("k") + u32(ARRAY) + u32(STRING) + u64(2**36), "elements of at least 8 bytes, but"),
    "too many strings": (
        text("k") + u32(ARRAY) + u32(STRING) + u64(2**24 + 1),
        "elements: allowed are at most 16777216",
    ),
    "a huge string": (text("k") + u32(ARRAY) + u32(STRING) + u64(1) + u64(2**39), r"string 0 of 1 .* that remain"),
    "a huge text": (text("k") + u32(STRING) + u64(2**39), "allowed are at most 16777216"),
    "a huge key": (u64(2**39), "allowed are 1 to 65535"),
}


@pytest.mark.parametrize("lie", LIES)
def test_file_sparse_terabytes_cost_nothing(tmp_path: Path, lie: str) -> None:
    field, expected = LIES[lie]
    path = tmp_path / "sparse.gguf"
    path.write_bytes(Build([field]).head())
    os.truncate(path, 2**40)
    seconds, peak = cost_of(lambda: refuse(path, expected))
    assert seconds < 0.01
    assert peak < 1 << 20


@pytest.mark.parametrize("counts", [(2**22, 0), (0, 2**22)])
def test_file_sparse_counts_end_at_the_first_zero(tmp_path: Path, counts: tuple[int, int]) -> None:
    path = tmp_path / "sparse.gguf"
    path.write_bytes(Build(n_tensors=counts[0], n_entries=counts[1]).head())
    os.truncate(path, 2**40)
    with pytest.raises(GgufError, match="has 0 bytes: allowed are 1 to"):
        open_gguf(path)


def test_file_a_few_bytes_that_claim_2_63_elements_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "lie.gguf"
    data = Build([text("k") + u32(ARRAY) + u32(U8) + u64(2**63)]).head()
    assert len(data) == 49
    path.write_bytes(data)
    seconds, peak = cost_of(
        lambda: refuse(path, f"'k' claims {2**63} elements of at least 1 bytes, but 0 bytes remain")
    )
    assert seconds < 0.01
    assert peak < 1 << 20


def test_file_a_large_vocabulary_makes_no_object_per_token(tmp_path: Path) -> None:
    n_vocab = 262_144
    tokens = b"".join(map(text, (f"token-{i}" for i in range(n_vocab))))
    types = text("types") + u32(ARRAY) + u32(5) + u64(n_vocab) + bytes(4 * n_vocab)
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(Build([text("tokens") + u32(ARRAY) + u32(STRING) + u64(n_vocab) + tokens, types]).head())
    _, peak = cost_of(lambda: open_gguf(path).close())
    assert peak < len(tokens) + 4 * n_vocab + 100_000  # the arrays as they lie in the file, and next to nothing else
    file = open_gguf(path)
    strings = file.metadata.get_strings("tokens")
    assert (len(strings), strings[-1]) == (n_vocab, f"token-{n_vocab - 1}")
    assert len(file.metadata.get_ints("types")) == n_vocab


def error_of_use(path: Path, strategy: Strategy, platform: FaultyPlatform) -> str | None:
    """Reads a tensor; how that failed, if it did."""
    try:
        with open_gguf(path, strategy=strategy, platform=platform) as file:
            assert file.tensor_data("w") == bytes(range(36))
    except SourceError as error:
        return str(error)
    return None


@pytest.mark.parametrize("strategy", list(Strategy))
def test_file_fails_cleanly_at_every_platform_call(model: Path, strategy: Strategy) -> None:
    n_failed = 0
    for fail_at in range(1, 100):
        platform = FaultyPlatform(fail_at, errno.EIO)
        error = error_of_use(model, strategy, platform)
        if error is not None:
            n_failed += 1
            assert str(model) in error
        gc.collect()
        platform.assert_nothing_left()
        if not platform.has_failed:
            break
    assert not platform.has_failed
    assert n_failed >= 3


def test_file_a_malformed_file_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(Build([entry("k", U8, 1)], [tensor("t", (99,))]).bytes())
    platform = FaultyPlatform()
    with pytest.raises(GgufError, match="tensor 't' ends at byte"):
        open_gguf(path, platform=platform)
    gc.collect()
    platform.assert_nothing_left()


def test_file_is_made_of_a_ready_reader(model: Path) -> None:
    machine = ReaderMachine(ReaderContext())
    machine.dispatch(ReadFile(str(model)))
    assert list(GgufFile([machine], {}).tensors) == ["w", "b"]
