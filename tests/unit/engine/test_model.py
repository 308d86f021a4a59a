from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emel
from emel.errors import EmelError, ModelLoadError, ModelNotFoundError, ModelReadError, RequestError
from emel.gguf import GgufError, GgufFile
from emel.kernel.features import available_routes
from emel.model.errors import ModelError
from emel.text.chat import ChatTemplate
from emel.text.sampling import SamplingParams
from model.tiny_llama import Geometry, write_tiny_llama
from unit.engine.conftest import N_CTX

if TYPE_CHECKING:
    from pathlib import Path

PROMPT = "to be or not"


def test_model_says_what_it_is(model: emel.Model) -> None:
    assert (model.n_ctx, model.n_vocab, model.n_threads) == (N_CTX, 320, 1)
    assert model.isa in available_routes()
    assert model.metadata["general.architecture"] == "llama"


def test_model_shows_what_it_is_and_that_it_is_closed(tiny_path: Path) -> None:
    model = emel.load(tiny_path, n_threads=1, n_ctx=32)
    assert repr(model) == f"<emel.Model {str(tiny_path)!r}, n_ctx=32, n_threads=1, isa={model.isa!r}>"
    model.close()
    assert repr(model) == "<emel.Model, closed>"


@pytest.mark.parametrize(
    ("prompt", "hint"),
    [
        (["a", "b"], "generate_many"),
        ([1, 2], "generate_ids"),
        ([{"role": "user", "content": "a"}], "model.chat takes"),
        ([], None),
        (5, None),
    ],
)
def test_prompt_that_is_no_text_is_told_what_takes_it(model: emel.Model, prompt: Any, hint: str | None) -> None:
    with pytest.raises(RequestError) as caught:
        model.generate(prompt)
    assert (hint is None and caught.value.hint is None) or (hint is not None and hint in str(caught.value.hint))


def test_model_is_not_pickled_and_an_answer_is_shown_short(model: emel.Model) -> None:
    for use in (pickle.dumps, copy.deepcopy, copy.copy):
        with pytest.raises(TypeError, match="a model cannot be pickled or copied: load it in the process"):
            use(model)
    done = model.generate(PROMPT, max_tokens=2)
    assert repr(done).startswith(f"Completion(text={done.text!r}, token_ids={done.token_ids!r}, finish_reason='length'")
    assert "top_k" not in repr(done)
    assert len(repr(done)) < 300
    assert pickle.loads(pickle.dumps(done)) == done


def test_same_seed_same_text_and_the_effective_seed_is_told(model: emel.Model) -> None:
    hot = {"temperature": 2.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_tokens": 12}
    first = model.generate(PROMPT, seed=42, **hot)
    assert model.generate(PROMPT, seed=42, **hot).token_ids == first.token_ids
    assert model.generate(PROMPT, seed=43, **hot).token_ids != first.token_ids
    assert (first.seed, first.sampling["seed"]) == (42, 42)
    free = [model.generate(PROMPT, **hot) for _ in range(2)]
    assert free[0].seed != free[1].seed
    assert all(0 <= done.seed < 2**53 for done in free)
    assert model.generate(PROMPT, seed=free[0].seed, **hot).token_ids == free[0].token_ids
    assert model.generate(PROMPT, temperature=0, max_tokens=1).seed == 0


def test_sampling_is_told_in_full(model: emel.Model) -> None:
    done = model.generate(PROMPT, max_tokens=1, seed=5, top_k=7)
    assert done.sampling == SamplingParams(max_tokens=1, seed=5, top_k=7).effective()
    assert done.sampling["top_k"] == 7


def test_no_tokens_asked_gives_an_empty_text(model: emel.Model) -> None:
    done = model.generate(PROMPT, max_tokens=0)
    assert (done.text, done.token_ids, done.finish_reason) == ("", (), "length")
    assert done.n_prompt_tokens == len(model.tokenize(PROMPT))
    chunks = list(model.stream(PROMPT, max_tokens=0))
    assert [(chunk.text, chunk.finish_reason) for chunk in chunks] == [("", "length")]


def test_ids_may_come_from_numpy(model: emel.Model) -> None:
    ids = model.tokenize(PROMPT)
    expected = model.generate_ids(ids, temperature=0, max_tokens=4).token_ids
    for given in (np.array(ids), np.array(ids, dtype=np.uint16), tuple(np.array(ids, dtype=np.int32)), iter(ids)):
        assert model.generate_ids(given, temperature=0, max_tokens=np.int64(4)).token_ids == expected
    assert model.detokenize(np.array(ids)) == PROMPT
    assert all(type(token) is int for token in expected)


@pytest.mark.parametrize(
    ("method", "argument", "error"),
    [
        ("generate", "", "the prompt has no tokens: give at least one character"),
        ("stream", "", "the prompt has no tokens"),
        ("generate", 7, "the prompt is 7: it must be a str (or bytes)"),
        ("generate", None, "the prompt is None: it must be a str"),
        ("stream", ["a"], r"the prompt is ['a']: it must be a str"),
        ("tokenize", 1.5, "the text is 1.5: it must be a str"),
        ("generate", "x" * (N_CTX + 1), f"the prompt has {N_CTX + 1} tokens, the context holds {N_CTX}"),
        ("generate_ids", [1] * 1000, f"the prompt has 1000 tokens, the context holds {N_CTX}"),
        ("generate_ids", [], "the prompt has no tokens"),
        ("generate_ids", [1, 320], "token id 320 is outside the vocabulary: allowed are 0 to 319"),
        ("generate_ids", [-1, 3], "token id -1 is outside the vocabulary: allowed are 0 to 319"),
        ("generate_ids", [2**40], f"token id {2**40} is outside the vocabulary"),
        ("generate_ids", [2**70], f"token 0 is {2**70}: it must have at most 64 bits"),
        ("generate_ids", "abc", "the token ids are 'abc': they must be a sequence of whole numbers"),
        ("generate_ids", 5, "the token ids are 5: they must be a sequence of whole numbers"),
        ("generate_ids", [1, True], "token 1 is True: it must be a whole number"),
        ("generate_ids", [1.0], "token 0 is 1.0: it must be a whole number"),
        ("generate_ids", ["1"], "token 0 is '1': it must be a whole number"),
        ("generate_ids", np.array([1.0]), "it must be a whole number"),
        ("generate_ids", np.array([True]), "it must be a whole number"),
        ("generate_ids", np.array([[1, 2], [3, 4]]), "token 0 is array([1, 2]): it must be a whole number"),
        ("logits", [320], "token id 320 is outside the vocabulary"),
        ("logits", [], "the prompt has no tokens"),
        ("detokenize", [320], "token id 320 is outside the vocabulary"),
        ("detokenize", "ab", "the token ids are 'ab'"),
    ],
)
def test_wrong_prompt_is_refused_in_one_line(model: emel.Model, method: str, argument: Any, error: str) -> None:
    with pytest.raises(RequestError) as caught:
        getattr(model, method)(argument)
    assert error in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"temp": 1}, "unknown sampling parameter 'temp' (did you mean temperature?): known are cache_prompt, "),
        ({"max_token": 1}, "unknown sampling parameter 'max_token' (did you mean max_tokens?): known are "),
        ({"json_shema": {}}, "unknown sampling parameter 'json_shema' (did you mean json_schema?): known are "),
        ({"temperature": -1}, "temperature is -1: allowed are numbers from 0.0 to 100.0 (0 is greedy)"),
        ({"temperature": "1"}, "temperature is '1'"),
        ({"temperature": True}, "temperature is True"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": 1.5}, "top_k is 1.5: allowed are whole numbers"),
        ({"top_p": 1.01}, "top_p is 1.01"),
        ({"min_p": -0.1}, "min_p is -0.1"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, f"seed is {2**64}"),
        ({"max_tokens": -1}, "max_tokens is -1: allowed are whole numbers from 0"),
        ({"max_tokens": True}, "max_tokens is True"),
        ({"stop": ""}, "stop is '': allowed are a text or several, each with at least one character"),
        ({"stop": ["a", ""]}, "stop is ['a', '']"),
        ({"stop": 5}, "stop is 5"),
        ({"stop": b"a"}, "stop is b'a'"),
        ({"stop": [b"a"]}, "stop is [b'a']"),
        ({"stop": ["a" * 99, None]}, "..."),
    ],
)
def test_wrong_keyword_is_refused_before_anything_is_computed(
    model: emel.Model, keywords: dict[str, Any], error: str
) -> None:
    for call in (model.generate, model.stream):
        with pytest.raises(RequestError) as caught:
            call(PROMPT, **keywords)
        assert error in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.fixture
def chat_model(model: emel.Model, monkeypatch: pytest.MonkeyPatch) -> emel.Model:
    """The tiny model, given a template: its file has none."""
    source = (
        "{% for each in messages %}{{ each.content }}{{ raise_exception('no!') if 'bad' in each.content }}{% endfor %}"
    )
    monkeypatch.setattr(model, "_template", ChatTemplate(source))
    return model


def test_chat_with_a_model_that_has_no_template_is_refused(model: emel.Model) -> None:
    with pytest.raises(RequestError, match="the model has no chat template"):
        model.chat([{"role": "user", "content": "hello"}])


def test_chat_streams_what_it_says(chat_model: emel.Model) -> None:
    model = chat_model
    messages = [{"role": "user", "content": "hello"}]
    ids = model.encode_chat(messages)
    done = model.chat(messages, temperature=0, max_tokens=9)
    assert done.token_ids == model.generate_ids(ids, temperature=0, max_tokens=9).token_ids
    assert "".join(chunk.text for chunk in model.chat(messages, stream=True, temperature=0, max_tokens=9)) == done.text


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "user"}],
        "hello",
        [{"role": 5, "content": "x"}],
        5,
        {"role": "user"},
        [7],
        [{"role": "user", "content": "bad"}],
    ],
)
def test_chat_of_wrong_messages_is_a_request_error(chat_model: emel.Model, messages: Any) -> None:
    with pytest.raises(RequestError) as caught:
        chat_model.chat(messages, max_tokens=1)
    assert "\n" not in str(caught.value)


def test_detokenize_gives_the_text_back(model: emel.Model) -> None:
    for text in ("plain", "naïve 日本 \U0001f600", "\0\x7f"):
        assert model.detokenize(model.tokenize(text)) == text
    assert model.detokenize(model.tokenize(b"a\xff")) == "a\ufffd"
    assert model.generate(b"a\xffb", max_tokens=0).n_prompt_tokens == 3


# ---- numbers


def test_logits_leave_turns_to_others_between_chunks(model: emel.Model) -> None:
    ids = model.tokenize("0123456789" * 8)
    alone = model.logits(ids)
    text = model.generate(PROMPT, temperature=0, max_tokens=30).text
    with ThreadPoolExecutor(2) as pool:
        logits = pool.submit(model.logits, ids, chunk=3)
        generated = pool.submit(model.generate, PROMPT, temperature=0, max_tokens=30)
        assert generated.result(timeout=30).text == text
        assert np.array_equal(logits.result(timeout=30), alone)


@pytest.mark.parametrize("chunk", [0, -1, True, 1.0, "2"])
def test_logits_refuse_a_chunk_that_is_no_number_of_tokens(model: emel.Model, chunk: Any) -> None:
    with pytest.raises(RequestError, match="chunk is"):
        model.logits([1, 2], chunk=chunk)


def test_measure_counts_prefill_and_steps(model: emel.Model) -> None:
    timings = model.measure(model.tokenize(PROMPT), 5)
    assert (timings.n_prompt_tokens, timings.n_tokens) == (12, 6)
    assert 0 < timings.prefill_seconds == timings.time_to_first_token
    assert timings.decode_seconds > 0
    for n_decode in (-1, N_CTX, True):
        with pytest.raises(RequestError):
            model.measure([1], n_decode)
    with pytest.raises(RequestError, match="n_decode is -1: it must be 0 or more"):
        model.measure([1], -1)


# ---- life


def test_closed_model_refuses_everything_and_closes_again(tiny_path: Path) -> None:
    with emel.load(tiny_path, n_threads=1) as model:
        stream = model.stream(PROMPT)
    model.close()
    for call in (lambda: model.generate("a"), lambda: model.tokenize("a"), lambda: model.n_ctx, lambda: list(stream)):
        with pytest.raises(RequestError, match="this model is closed") as caught:
            call()
        assert caught.value.hint is not None


def test_model_closed_while_a_stream_is_open_ends_it(tiny_path: Path) -> None:
    model = emel.load(tiny_path, n_threads=1)
    streams = [model.stream(PROMPT, temperature=5.0, top_k=0, seed=seed) for seed in range(20)]
    next(streams[0])
    model.close()
    with pytest.raises(RequestError, match="this model is closed"):
        list(streams[-1])
    assert list(streams[-1]) == []
    streams[-2].close()


def test_model_closed_while_threads_generate_never_crashes(tiny_path: Path) -> None:
    for _ in range(5):
        model = emel.load(tiny_path, n_threads=2)
        expected = model.generate(PROMPT, temperature=0, max_tokens=40).text
        started = threading.Barrier(4, timeout=20)

        def work(model: emel.Model = model, started: threading.Barrier = started) -> str:
            started.wait()
            try:
                while True:
                    text = model.generate(PROMPT, temperature=0, max_tokens=40).text
            except RequestError as error:
                assert "this model is closed" in str(error)  # noqa: PT017 - it must end the loop
            return text

        with ThreadPoolExecutor(3) as pool:
            futures = [pool.submit(work) for _ in range(3)]
            started.wait()
            model.generate(PROMPT, max_tokens=1)
            model.close()
            for future in futures:
                try:
                    assert future.result(timeout=20) == expected
                except UnboundLocalError:  # closed before its first answer
                    continue


def test_model_closed_by_a_listener_ends_after_the_step(tiny_path: Path) -> None:
    model = emel.load(tiny_path, n_threads=1)
    failures: list[Exception] = []
    is_over = threading.Event()

    class Closer:
        def on_chunk(self, chunk: emel.Chunk) -> None:
            model.close()

        def on_end(self, completion: emel.Completion) -> None:
            raise AssertionError(completion)

        def on_failure(self, error: Exception) -> None:
            failures.append(error)
            is_over.set()

    model.submit(model.tokenize(PROMPT), Closer(), temperature=0)
    assert is_over.wait(20)
    assert "this model is closed" in str(failures[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_model_used_after_a_fork_is_refused(model: emel.Model) -> None:
    read, write = os.pipe()
    if not (child := os.fork()):
        try:
            model.generate(PROMPT, max_tokens=1)
        except RequestError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as stream:
        assert "loaded before the process forked" in stream.read()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_stream_read_after_a_fork_is_refused(model: emel.Model) -> None:
    with model.stream(PROMPT, max_tokens=4) as stream:
        next(stream)
        read, write = os.pipe()
        if not (child := os.fork()):
            try:
                for step in (lambda: next(stream), stream._request.session.check_open):
                    try:
                        step()
                    except RequestError as error:
                        os.write(write, f"{error}\n".encode())
                stream.close()
                os.write(write, b"closed")
            finally:
                os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        with os.fdopen(read) as answer:
            said = answer.read().splitlines()
        assert said[:-1] == ["this model was loaded before the process forked: its threads did not come along"] * 2
        assert said[-1] == "closed"


# ---- loading


def test_load_errors_are_of_the_api_with_their_cause(tmp_path: Path, tiny_path: Path) -> None:
    whole = tiny_path.read_bytes()
    files = {
        "magic": b"nope" * 10,
        "cut": whole[: len(whole) // 2],
        "architecture": whole.replace(b"llama", b"lLama"),
        "tokenizer": whole.replace(b"\x04\0\0\0\0\0\0\0gpt2", b"\x04\0\0\0\0\0\0\0gptX"),
        "pre": whole.replace(b"smollm", b"smolXm"),
    }
    causes = {"magic": GgufError, "cut": GgufError, "architecture": ModelError, "tokenizer": ValueError}
    for name, data in files.items():
        assert data != whole
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(data)
        with pytest.raises(ModelLoadError) as caught:
            emel.load(path, n_threads=1)
        assert isinstance(caught.value, EmelError)
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value.__cause__, causes.get(name, ValueError))
        assert str(caught.value) == str(caught.value.__cause__)
        assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_load_of_an_unreadable_file_is_a_read_error(tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "secret.gguf"
    path.write_bytes(tiny_path.read_bytes())
    path.chmod(0)
    with pytest.raises(ModelReadError):
        emel.load(path)


def test_load_takes_no_bytes_for_a_path() -> None:
    with pytest.raises(RequestError, match=r"the model is b'/path': it must be a name or a path"):
        emel.load(b"/path")  # type: ignore[arg-type]


SHRINKING = """
import os, sys, threading
import emel
from emel.io.platform import Platform

path, reading = sys.argv[1], threading.Event()
read_into = Platform.read_into

def tell_then_read(self, descriptor, target, offset):
    reading.set()
    return read_into(self, descriptor, target, offset)

def shrink():
    reading.wait()
    os.truncate(path, 64)

Platform.read_into = tell_then_read
thread = threading.Thread(target=shrink)
thread.start()
try:
    emel.load(path, n_threads=1).close()
except emel.ModelReadError as error:
    assert "shrank" in str(error), error
thread.join()
"""


def test_load_of_a_file_that_another_thread_shrinks_never_ends_the_process(tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    for _ in range(5):
        path.write_bytes(tiny_path.read_bytes())
        ended = subprocess.run([sys.executable, "-c", SHRINKING, path], check=False, capture_output=True, text=True)
        assert (ended.returncode, ended.stderr) == (0, "")


def test_load_of_a_file_that_shrinks_after_it_was_parsed_is_a_read_error(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_path.read_bytes())
    monkeypatch.setattr(GgufFile, "prefetch", lambda _file: os.truncate(path, 64))
    with pytest.raises(ModelReadError, match="to 64 bytes while it was in use: fetch it again"):
        emel.load(path, n_threads=1)


def test_load_that_the_system_refuses_is_a_read_error(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from emel.model import loader

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "model.gguf")

    monkeypatch.setattr(loader, "load_model", refuse)
    with pytest.raises(ModelReadError, match="Permission denied") as caught:
        emel.load(tiny_path)
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value, EmelError)
    assert isinstance(caught.value.__cause__, PermissionError)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"n_ctx": N_CTX + 1}, f"n_ctx is {N_CTX + 1}: this model allows 1 to {N_CTX} (0: all of it)"),
        ({"n_ctx": -1}, "n_ctx is -1: it must be 0 (all the model has) or more"),
        ({"n_ctx": True}, "n_ctx is True: it must be a whole number"),
        ({"n_ctx": "512"}, "n_ctx is '512': it must be a whole number"),
        ({"n_threads": 0}, "0 threads were asked for: 1 to 256 are allowed"),
        ({"n_threads": 5000}, "5000 threads were asked for: 1 to 256 are allowed"),
        ({"n_threads": "2"}, "n_threads is '2': it must be a whole number"),
        ({"isa": "mmx"}, "the CPU route 'mmx' is asked for, but there is no such route"),
    ],
)
def test_load_refuses_wrong_arguments(tiny_path: Path, arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(RequestError) as caught:
        emel.load(tiny_path, **arguments)
    assert error in str(caught.value)


def test_load_takes_a_path_or_a_name(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="the model is 3: it must be a name or a path"):
        emel.load(3)  # type: ignore[arg-type]
    with pytest.raises(ModelNotFoundError):
        emel.load(tmp_path / "none.gguf")


@pytest.mark.parametrize(("asked", "given"), [(None, N_CTX), (0, N_CTX), (1, 1), (17, 17), (N_CTX, N_CTX)])
def test_context_is_what_was_asked_for(tiny_path: Path, asked: int | None, given: int) -> None:
    with emel.load(tiny_path, n_ctx=asked, n_threads=1) as model:
        assert model.n_ctx == given
        done = model.generate("x" * given, temperature=0)
        assert (done.token_ids, done.finish_reason) == ((), "length")
        with pytest.raises(RequestError, match=f"the prompt has {given + 1} tokens, the context holds {given}"):
            model.generate("x" * (given + 1))


# ---- damaged and degenerate weights


def rewrite(path: Path, name: str, change: Any) -> None:
    """Changes a float32 tensor of a file in place."""
    import gguf

    tensor = next(each for each in gguf.GGUFReader(path, "r+").tensors if each.name == name)
    assert isinstance(tensor.data, np.memmap)
    change(tensor.data)
    tensor.data.flush()


@pytest.fixture
def float_path(tmp_path: Path) -> Path:
    path = tmp_path / "float.gguf"
    write_tiny_llama(path, Geometry(n_layers=3, d_model=64, n_heads=2, n_kv_heads=1, d_ff=64, tied=False), "F32")
    return path


def test_weights_that_are_not_numbers_fail_that_request_and_name_the_layer(float_path: Path) -> None:
    with emel.load(float_path, n_threads=1) as model:
        z = model.tokenize("z")[0]
        expected = model.generate("ab", temperature=0, max_tokens=5).text

    def spoil(data: Any) -> None:
        data[z, 3] = np.nan

    rewrite(float_path, "token_embd.weight", spoil)
    with emel.load(float_path, n_threads=1) as model:
        open_stream = model.stream("ab", temperature=0, max_tokens=5)
        text = next(open_stream).text
        for call in (lambda: model.generate("az", temperature=0), lambda: model.logits(model.tokenize("az"))):
            with pytest.raises(
                RequestError, match=r"the logits are not finite .*: a value first .* in layer 0"
            ) as caught:
                call()
            assert "damaged" in str(caught.value)
        assert text + "".join(chunk.text for chunk in open_stream) == expected
        assert model.generate("ab", temperature=0, max_tokens=5).text == expected


def test_layer_that_gives_infinities_is_named(float_path: Path) -> None:
    rewrite(float_path, "blk.1.ffn_norm.weight", lambda data: data.fill(np.inf))
    with (
        emel.load(float_path, n_threads=1) as model,
        pytest.raises(RequestError, match="a value first stopped being finite in layer 1;"),
    ):
        model.generate("abc", max_tokens=3)


def test_output_matrix_that_is_not_finite_is_named(float_path: Path) -> None:
    rewrite(float_path, "output.weight", lambda data: data[7].fill(np.nan))
    with emel.load(float_path, n_threads=1) as model:
        with pytest.raises(RequestError, match="the output matrix made them so"):
            model.generate("abc", max_tokens=3)
        with pytest.raises(RequestError, match="the output matrix made them so"):
            model.measure([1, 2], 2)


def test_greedy_takes_the_lowest_id_of_equals(float_path: Path) -> None:
    def pair_up(data: Any) -> None:
        data[0] = 0  # the end token
        data[2::2] = data[1:-1:2]

    rewrite(float_path, "output.weight", pair_up)
    with emel.load(float_path, n_threads=1) as model:
        for temperature in (0, 1e-30):
            tokens = model.generate("to be", temperature=temperature, max_tokens=40).token_ids
            assert len(tokens) >= 10
            assert all(token % 2 for token in tokens if token)
