"""`emel serve` as a process: it starts, says what is wrong with its flags, and ends as services do."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest

from model.tiny_llama import Geometry, write_tiny_llama

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "tiny.gguf"
    write_tiny_llama(path, Geometry(n_layers=1, d_model=64, n_heads=2, n_kv_heads=1, d_ff=64, n_ctx=4096), "Q8_0")
    return path


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "emel", "serve", *map(str, arguments)]


class Process:
    def __init__(self, *arguments: str | Path) -> None:
        self.running = subprocess.Popen(command(*arguments, "--port", "0"), stderr=subprocess.PIPE, text=True)
        assert self.running.stderr is not None
        self.lines: list[str] = []
        while not (self.lines and "://" in self.lines[-1]):
            line = self.running.stderr.readline()
            assert line, self.lines
            self.lines.append(line)
        match = re.search(r"(https?://\S+)", self.lines[-1])
        assert match is not None
        self.url = match[1]
        for _ in range(400):
            try:
                if httpx.get(f"{self.url}/health").status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.05)
        raise AssertionError("it does not get ready")

    def end(self, number: int) -> int:
        self.running.send_signal(number)
        return self.running.wait(60)


@pytest.fixture
def process(tiny: Path) -> Iterator[Process]:
    found = Process(tiny, "-t", "1")
    yield found
    if found.running.poll() is None:
        found.running.kill()
    found.running.wait()
    assert found.running.stderr is not None
    found.running.stderr.close()


LONG: dict[str, Any] = {"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "temperature": 0}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0(process: Process, number: int) -> None:
    assert httpx.post(f"{process.url}/v1/completions", json={"prompt": "a", "max_tokens": 2}).status_code == 200
    assert process.end(number) == 0


def test_running_requests_are_answered_before_it_ends(process: Process) -> None:
    with httpx.stream(
        "POST", f"{process.url}/v1/completions", json={**LONG, "max_tokens": 400, "stream": True}
    ) as response:
        lines = response.iter_lines()
        next(lines)
        process.running.send_signal(signal.SIGTERM)
        rest = list(lines)
    assert rest[-2:] == ["data: [DONE]", ""]
    assert process.running.wait(60) == 0


def test_a_second_signal_ends_it_at_once(process: Process) -> None:
    body = {**LONG, "stream": True, "n": 8}  # more than the socket holds: it is not over while nobody reads it
    with httpx.stream("POST", f"{process.url}/v1/completions", json=body) as response:
        lines = response.iter_lines()  # held: without it the response would be closed
        next(lines)
        process.running.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert process.running.poll() is None
        assert process.end(signal.SIGTERM) == 1


def test_who_is_not_answered_in_time_is_told_so(tiny: Path) -> None:
    process = Process(tiny, "-t", "1", "--drain", "0")

    def ask(stream: bool) -> httpx.Response:
        return httpx.post(f"{process.url}/v1/completions", json={**LONG, "n": 8, "stream": stream}, timeout=60)

    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(ask, stream) for stream in (False, True)]
        for _ in range(400):
            if re.search(r"emel_requests_waiting{.*} [1-9]", httpx.get(f"{process.url}/metrics").text):
                break
            time.sleep(0.01)
        assert process.end(signal.SIGTERM) == 0
        whole, streamed = (each.result() for each in asked)
    assert (whole.status_code, whole.headers["retry-after"]) == (503, "5")
    assert whole.json()["error"]["message"].startswith("the server ends")
    *_, last, end = streamed.text.split("\n\n")
    assert (streamed.status_code, end) == (200, "")
    assert last.startswith('data: {"error":{"message":"the server ends')
    assert process.running.stderr is not None
    told = process.running.stderr.read()
    process.running.stderr.close()
    assert "Traceback" not in told
    assert "Cancel" not in told
    assert '"status": 503' in told


def test_the_end_says_what_it_waits_for_and_how_it_ended(process: Process) -> None:
    assert process.running.stderr is not None
    body = {**LONG, "stream": True, "n": 8}
    with httpx.stream("POST", f"{process.url}/v1/completions", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        process.running.send_signal(signal.SIGINT)
        waiting = line_with("waiting", process)
        assert waiting == "waiting up to 30 s for 1 request; Ctrl-C again ends at once\n"
        assert process.end(signal.SIGINT) == 1
    assert process.running.stderr.read().splitlines()[-1] == "emel: ended at once, 1 request unanswered"


def line_with(word: str, process: Process) -> str:
    assert process.running.stderr is not None
    return next(line for line in process.running.stderr if word in line)


def test_it_says_when_it_is_ready_and_where(tiny: Path) -> None:
    process = Process(tiny, "-t", "1", "-c", "256")
    try:
        assert process.lines == [f"loading tiny, to be served on {process.url}\n"]
        loaded = json.loads(line_with("tiny: loaded", process))["message"]
        assert re.fullmatch(r"tiny: loaded in \d+\.\d s, with a context of 256 tokens \(-c N: up to 4096\)", loaded)
        ready = re.escape(f"the page is {process.url}/, the API {process.url}/v1")
        assert re.fullmatch(rf"ready after \d+\.\d s: {ready}\n", line_with("ready after", process))
    finally:
        assert process.end(signal.SIGTERM) == 0
        assert process.running.stderr is not None
        process.running.stderr.close()


UNLOADABLE = {
    "context": ["-c", "100000"],
    "memory": ["--memory", "1KiB"],
    "adapter": ["--lora", os.devnull],
    "draft": ["-md", "DAMAGED"],
}


@pytest.fixture
def damaged(tmp_path: Path, tiny: Path) -> Path:
    path = tmp_path / "damaged.gguf"
    path.write_bytes(tiny.read_bytes()[:-1000])
    return path


@pytest.mark.parametrize("name", UNLOADABLE)
def test_a_server_none_of_whose_models_can_be_loaded_ends_with_1(tiny: Path, damaged: Path, name: str) -> None:
    flags = [str(damaged) if each == "DAMAGED" else each for each in UNLOADABLE[name]]
    words = command(tiny, *flags, "--port", "0", "-t", "1")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, done.stderr
    first, error, *hint = done.stderr.splitlines()
    assert first.startswith("loading tiny, to be served on http://127.0.0.1:")
    assert error.startswith("emel: error: ")
    assert all(each.startswith("hint: ") for each in hint)


def test_all_of_several_models_that_cannot_be_loaded_are_told(tiny: Path) -> None:
    words = command(tiny, f"other={tiny}", "-c", "100000", "--port", "0", "-t", "1")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, done.stderr
    told = [json.loads(line)["message"] for line in done.stderr.splitlines() if line.startswith("{")]
    assert sorted(line.partition(": n_ctx is 100000")[0] for line in told) == [
        f"{name}: could not be loaded" for name in ("other", "tiny")
    ]
    assert "emel: error: none of the 2 models could be loaded" in done.stderr.splitlines()


def test_files_that_are_no_models_are_told_before_anything_listens(damaged: Path) -> None:
    (damaged.parent / "text.gguf").write_text("hello")
    words = command(damaged.parent / "text.gguf", damaged, "--port", "0")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "text.gguf': not a GGUF file" in done.stderr


def test_one_of_several_models_that_cannot_be_loaded_is_told_and_not_served(tiny: Path, damaged: Path) -> None:
    process = Process(damaged, tiny, "-t", "1")
    try:
        assert "it is truncated" in line_with("damaged: could not be loaded", process)
        found = httpx.get(f"{process.url}/v1/models").json()["data"]
        assert {each["id"]: each["status"] for each in found} == {"damaged": "failed", "tiny": "ready"}
        damaged.write_bytes(tiny.read_bytes())
        assert httpx.post(f"{process.url}/models/load", json={"model": "damaged"}).json()["success"]
    finally:
        assert process.end(signal.SIGTERM) == 0
        assert process.running.stderr is not None
        process.running.stderr.close()


def test_it_starts_again_after_it_was_killed(tiny: Path, process: Process) -> None:
    process.running.kill()
    process.running.wait()
    again = Process(tiny, "-t", "1")
    assert again.end(signal.SIGTERM) == 0
    assert again.running.stderr is not None
    again.running.stderr.close()


def test_it_listens_at_a_path(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "emel.sock"
    running = subprocess.Popen(command(tiny, "--host", path, "-t", "1"), stderr=subprocess.DEVNULL)
    try:
        for _ in range(400):
            if path.exists():
                break
            time.sleep(0.05)
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://emel") as client:
            for _ in range(400):
                if client.get("/health").status_code == 200:
                    break
                time.sleep(0.05)
            assert client.get("/v1/models").json()["data"][0]["id"] == "tiny"
            again = command(tiny, "--host", path)
            refused = subprocess.run(again, capture_output=True, text=True, check=False, timeout=60)
            assert refused.returncode == 1
            assert "emel.sock': another server does" in refused.stderr
            assert client.get("/health").status_code == 200
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
    assert not path.exists()


REFUSED = {
    "port": (["--port", "70000"], "argument --port: 70000 is above 65535"),
    "half of TLS": (["--ssl-key-file", "k.pem"], "--ssl-key-file and --ssl-cert-file belong together"),
    "no keys": (["--api-key-file", os.devnull], "there is no key in it"),
    "lanes": (["-np", "0"], "argument -np/--parallel: 0 is below 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_flags_are_told_in_one_line(tiny: Path, name: str) -> None:
    arguments, reason = REFUSED[name]
    done = subprocess.run(command(tiny, *arguments), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done.stderr
    assert reason in done.stderr.splitlines()[0]


def test_missing_keys_of_tls_are_told_before_anything_is_served(tiny: Path, tmp_path: Path) -> None:
    files = ["--ssl-key-file", str(tmp_path / "k.pem"), "--ssl-cert-file", str(tiny)]
    done = subprocess.run(command(tiny, *files), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    error, hint = done.stderr.splitlines()
    assert error.startswith(f"emel: error: no TLS with the key '{tmp_path / 'k.pem'}' and the certificate '{tiny}': ")
    assert hint == "hint: both are PEM files, and the certificate is that of the key"


def test_a_taken_port_is_told_in_one_line(process: Process, tiny: Path) -> None:
    port = process.url.rpartition(":")[2]
    done = subprocess.run(command(tiny, "--port", port), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"emel: error: port {port} of 127.0.0.1 is taken: address already in use",
        "hint: --port N takes another, --port 0 any that is free",
    ]


def test_a_public_address_without_a_key_is_warned_of(tiny: Path) -> None:
    process = Process(tiny, "--host", "0.0.0.0", "-t", "1")
    assert "set --api-key" in process.lines[0]
    assert process.end(signal.SIGTERM) == 0
    assert process.running.stderr is not None
    process.running.stderr.close()
