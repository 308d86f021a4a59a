"""`hf:` references, against a fake hub on loopback: huggingface_hub is the real one, in a process of its own.

(It reads its environment when it is imported, so each case is a process.)
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emel.engine.hub_repository import RepositoryReference, choose_files, parse_reference
from emel.errors import ModelNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "README.md": b"# a model",
    "tiny-Q8_0.gguf": b"GGUF q8",
    "tiny-Q4_K_M.gguf": b"GGUF q4km",
    "tiny-Q4_K_S.gguf": b"GGUF q4ks",
    "mmproj-tiny-Q4_K_M.gguf": b"GGUF vision",
    "big-Q6_K-00001-of-00002.gguf": b"GGUF 1",
    "big-Q6_K-00002-of-00002.gguf": b"GGUF 2",
}


class Hub(ThreadingHTTPServer):
    """The two calls of the hub that fetching needs; logs what it is asked and with which token."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.requests: list[tuple[str, str]] = []
        self.tokens: dict[str, str | None] = {}
        self.broken = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class HubHandler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        self.server.requests.append((self.command, path))
        self.server.tokens[path] = self.headers.get("Authorization")
        if self.server.broken:
            self._send(500, b"out of order", {})
        elif path.startswith("/api/models/owner/tiny"):
            revision = path.partition("/revision/")[2] or "main"
            if revision not in {"main", "v1", COMMIT}:
                self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
                return
            siblings = [{"rfilename": name} for name in FILES]
            body = json.dumps({"id": "owner/tiny", "modelId": "owner/tiny", "sha": COMMIT, "siblings": siblings})
            self._send(200, body.encode(), {"Content-Type": "application/json"})
        elif path.startswith("/owner/tiny/resolve/"):
            data = FILES[path.rpartition("/")[2]]
            self._send(200, data, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": COMMIT})
        elif path.startswith("/api/models/owner/gated"):
            self._send(403, b"{}", {"X-Error-Code": "GatedRepo"})
        else:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def _send(self, code: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def emel(hub: Hub, home: Path, *words: str, **extra: str) -> subprocess.CompletedProcess[str]:
    variables = {"HOME": str(home), "HF_HOME": str(home / "hf"), "HF_ENDPOINT": hub.url, "EMEL_CACHE": str(home / "c")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "EMEL_OFFLINE"))}
    direct = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return subprocess.run(
        [sys.executable, "-m", "emel", *words],
        capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
        env=kept | variables | direct | extra,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("hf:owner/tiny", "tiny-Q4_K_M.gguf"),
        ("hf:owner/tiny:q8_0", "tiny-Q8_0.gguf"),
        ("hf:owner/tiny:Q4_K_S@v1", "tiny-Q4_K_S.gguf"),
    ],
)
def test_pull_fetches_from_the_hub(reference: str, name: str, hub: Hub, tmp_path: Path) -> None:
    done = emel(hub, tmp_path, "pull", reference, HF_TOKEN="hf_secret")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "emel: looking up owner/tiny on the hub\n"  # no progress where there is no terminal
    path = Path(done.stdout.rstrip("\n"))
    assert path.is_relative_to(tmp_path / "hf")
    assert path.name == name
    assert path.read_bytes() == FILES[name]
    assert {token for path, token in hub.tokens.items() if "owner/tiny" in path} == {"Bearer hf_secret"}
    revision = "v1" if reference.endswith("@v1") else "main"
    assert ("HEAD", f"/owner/tiny/resolve/{revision}/{name}") in hub.requests
    fetched = [path for method, path in hub.requests if method == "GET" and "/resolve/" in path]
    assert [path.rpartition("/")[2] for path in fetched] == [name]


def test_what_was_pulled_is_used_without_the_network(hub: Hub, tmp_path: Path) -> None:
    fetched = emel(hub, tmp_path, "pull", "hf:owner/tiny").stdout.rstrip("\n")
    assert Path(fetched).name == "tiny-Q4_K_M.gguf"
    hub.requests.clear()
    # The files are no real models: the error about their content shows that they were found.
    for words in (["-m", "hf:owner/tiny"], ["-hf", "owner/tiny:q4_k_m"]):
        done = emel(hub, tmp_path, "inspect", *words)
        assert done.returncode == 1
        assert fetched in done.stderr
    assert emel(hub, tmp_path, "pull", "--offline", "hf:owner/tiny").stdout.rstrip("\n") == fetched
    assert hub.requests == []


def test_all_parts_of_a_split_model_are_fetched_beside_each_other(hub: Hub, tmp_path: Path) -> None:
    done = emel(hub, tmp_path, "pull", "hf:owner/tiny:q6_k")
    assert done.returncode == 0, done.stderr
    first = Path(done.stdout.strip())
    assert first.name == "big-Q6_K-00001-of-00002.gguf"
    assert first.read_bytes() == b"GGUF 1"
    assert (first.parent / "big-Q6_K-00002-of-00002.gguf").read_bytes() == b"GGUF 2"
    n_asked = len(hub.requests)
    again = emel(hub, tmp_path, "inspect", "hf:owner/tiny:q6_k")
    assert "big-Q6_K-00001-of-00002.gguf" in again.stderr
    assert len(hub.requests) == n_asked  # it is known to be here


def test_another_quantisation_here_is_not_taken_for_the_default(hub: Hub, tmp_path: Path) -> None:
    assert emel(hub, tmp_path, "pull", "hf:owner/tiny:q8_0").returncode == 0
    assert "tiny-Q4_K_M.gguf" in emel(hub, tmp_path, "inspect", "hf:owner/tiny").stderr


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["hf:owner/none"], "the hub has no repository owner/none", "HF_TOKEN"),
        (["hf:owner/gated"], "owner/gated is gated", "set HF_TOKEN"),
        (["hf:owner/tiny:q2_k"], "owner/tiny has no .gguf file for 'q2_k'", "tiny-Q8_0.gguf"),
        (["hf:owner/tiny@v9"], "owner/tiny has no revision 'v9'", ""),
        (["hf:owner/tiny", "--offline"], "is not in the cache and fetching is switched off", "while online"),
        (["hf:owner"], "'hf:owner' does not name a repository", "hf:owner/repo"),
        (["hf:../..:x"], "'hf:../..:x' does not name a repository: Repo id must use", "hf:owner/repo"),
        (["hf:a--b/c", "--offline"], "'hf:a--b/c' does not name a repository: Cannot have -- or ..", "hf:owner/repo"),
        (["hf:a/b.git@v1"], "'hf:a/b.git@v1' does not name a repository: Repo_id cannot end by", "hf:owner/repo"),
    ],
)
def test_pull_failure_is_one_line(words: list[str], error: str, hint: str, hub: Hub, tmp_path: Path) -> None:
    done = emel(hub, tmp_path, "pull", *words)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    line = next(line for line in done.stderr.splitlines() if line.startswith("emel: error: "))
    assert error in line
    assert hint in done.stderr


def test_pull_from_a_hub_that_is_down_is_one_line(hub: Hub, tmp_path: Path) -> None:
    hub.broken = True
    for endpoint in (hub.url, "http://127.0.0.1:1"):
        done = emel(hub, tmp_path, "pull", "hf:owner/tiny", HF_ENDPOINT=endpoint)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert f"emel: error: cannot fetch owner/tiny from {endpoint}: " in done.stderr


def test_parse_reference_reads_every_part() -> None:
    assert parse_reference("a/b") == RepositoryReference("a/b", None, None)
    assert parse_reference("a-1/b.c_d:Q4_0@v1.2") == RepositoryReference("a-1/b.c_d", "Q4_0", "v1.2")
    assert parse_reference("a/b:sub/x.gguf") == RepositoryReference("a/b", "sub/x.gguf", None)
    assert parse_reference("a/b@refs/pr/1") == RepositoryReference("a/b", None, "refs/pr/1")


@pytest.mark.parametrize("text", ["", "a", "a/", "/b", "a/b/c", "a/b:", "a/b@", "a b/c", "a/b:q:r", "../x/y", "a/b\n"])
def test_parse_reference_refuses_other_forms(text: str) -> None:
    with pytest.raises(ModelNotFoundError, match="does not name a repository"):
        parse_reference(text)


def choose(reference: str, *names: str) -> str:
    (name,) = choose_files(names, parse_reference(reference))
    return name


def test_choose_file_matches_whole_words_in_any_case() -> None:
    names = ("m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m.Q4_0.gguf", "m-IQ4_NL.gguf", "m-UD-Q2_K_XL.gguf", "BF16/m.gguf")
    assert choose("a/b:q4_k_s", *names) == "m-Q4_K_S.gguf"
    assert choose("a/b:Q4_0", *names) == "m.Q4_0.gguf"
    assert choose("a/b:iq4_nl", *names) == "m-IQ4_NL.gguf"
    assert choose("a/b:q2_k_xl", *names) == "m-UD-Q2_K_XL.gguf"
    assert choose("a/b:bf16", *names) == "BF16/m.gguf"
    for absent in ("q4_k", "q4", ".*"):
        with pytest.raises(ModelNotFoundError, match=r"has no \.gguf file for"):
            choose(f"a/b:{absent}", *names)


def test_choose_files_takes_all_parts_of_a_split_model_in_order() -> None:
    names = ["q6/m-Q6_K-00002-of-00003.gguf", "q6/m-Q6_K-00001-of-00003.gguf", "q6/m-Q6_K-00003-of-00003.gguf"]
    for reference in ("a/b:q6_k", "a/b", f"a/b:{names[0]}"):
        assert choose_files(names, parse_reference(reference)) == sorted(names)
    assert choose_files([*names, "q6/m-Q6_K.gguf"], parse_reference("a/b:q6_k")) == ["q6/m-Q6_K.gguf"]
    with pytest.raises(ModelNotFoundError, match=r"00001-of-00003.gguf, but not its part q6/m-Q6_K-00003-of-00003"):
        choose_files(names[:2], parse_reference("a/b:q6_k"))


def test_choose_file_defaults_to_q4_k_m_then_to_the_first() -> None:
    assert choose("a/b", "m-Q8_0.gguf", "m-q4_k_m.gguf", "a.gguf") == "m-q4_k_m.gguf"
    assert choose("a/b", "m-Q8_0.gguf", "README.md", "a.gguf") == "a.gguf"
    assert choose("a/b:z.gguf", "a.gguf", "z.gguf") == "z.gguf"
    with pytest.raises(ModelNotFoundError, match=r"the repository a/b has no \.gguf file"):
        choose("a/b", "README.md", "mmproj-x.gguf")
