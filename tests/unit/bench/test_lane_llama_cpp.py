"""The llama.cpp lane against a stand-in for the binding that writes down what it is asked to compute."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from emel.bench.lane_llama_cpp import LlamaCppEngine

N_VOCAB = 10


class FakeApi:
    """The functions the lane calls; the likeliest token is always the last one fed plus one."""

    __version__ = "0.3"

    def __init__(self) -> None:
        self.decoded: list[tuple[list[int], list[int], list[int]]] = []
        self.n_clears = 0
        self.context_parameters: Any = None
        self.model: object | None = object()
        self.status = 0
        self.logits = (ctypes.c_float * N_VOCAB)()

    def llama_log_callback(self, function: object) -> object:
        return function

    def llama_log_set(self, callback: object, _data: None) -> None: ...

    def llama_backend_init(self) -> None: ...

    def llama_model_default_params(self) -> SimpleNamespace:
        return SimpleNamespace()

    def llama_context_default_params(self) -> SimpleNamespace:
        return SimpleNamespace()

    def llama_model_load_from_file(self, _path: bytes, parameters: SimpleNamespace) -> object | None:
        assert parameters.n_gpu_layers == 0
        return self.model

    def llama_init_from_model(self, _model: object, parameters: SimpleNamespace) -> object:
        self.context_parameters = parameters
        return object()

    def llama_get_memory(self, _context: object) -> object:
        return object()

    def llama_model_get_vocab(self, _model: object) -> object:
        return object()

    def llama_vocab_n_tokens(self, _vocab: object) -> int:
        return N_VOCAB

    def llama_batch_init(self, n_tokens: int, _embeddings: int, _sequences: int) -> SimpleNamespace:
        return SimpleNamespace(
            n_tokens=0,
            token=[0] * n_tokens,
            pos=[0] * n_tokens,
            n_seq_id=[0] * n_tokens,
            seq_id=[[7] for _ in range(n_tokens)],
            logits=[1] * n_tokens,
        )

    def llama_memory_clear(self, _memory: object, _data: bool) -> None:
        self.n_clears += 1

    def llama_decode(self, _context: object, batch: SimpleNamespace) -> int:
        n = batch.n_tokens
        assert batch.n_seq_id[:n] == [1] * n
        assert batch.seq_id[:n] == [[0]] * n
        self.decoded.append((batch.token[:n], batch.pos[:n], batch.logits[:n]))
        self.logits[:] = [0.0] * N_VOCAB
        self.logits[(batch.token[n - 1] + 1) % N_VOCAB] = 1.0
        return self.status

    def llama_get_logits_ith(self, _context: object, index: int) -> object:
        assert index == -1
        return ctypes.cast(self.logits, ctypes.POINTER(ctypes.c_float))

    def llama_print_system_info(self) -> bytes:
        return b"CPU : AVX2 = 1 | AVX512 = 0 | FMA = 1 | "


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    fake = FakeApi()
    monkeypatch.setitem(sys.modules, "llama_cpp", fake)
    return fake


def test_lane_prefills_in_batches_of_512_with_logits_for_the_last_token_alone(api: FakeApi) -> None:
    prompt = [index % N_VOCAB for index in range(1100)]
    LlamaCppEngine("a.gguf", 2, 1228).measure(prompt, 0)
    assert [len(tokens) for tokens, _, _ in api.decoded] == [512, 512, 76]
    assert [token for tokens, _, _ in api.decoded for token in tokens] == prompt
    assert [place for _, places, _ in api.decoded for place in places] == list(range(1100))
    assert [flag for _, _, flags in api.decoded for flag in flags] == [0] * 1099 + [1]


def test_lane_decodes_greedily_one_token_at_a_time(api: FakeApi) -> None:
    LlamaCppEngine("a.gguf", 2, 64).measure([3, 4], 3)
    assert api.decoded == [([3, 4], [0, 1], [0, 1]), ([5], [2], [1]), ([6], [3], [1]), ([7], [4], [1])]


def test_lane_starts_every_run_from_an_empty_context(api: FakeApi) -> None:
    engine = LlamaCppEngine("a.gguf", 2, 64)
    engine.measure([1], 0)
    engine.measure([1], 0)
    assert api.n_clears == 2
    assert api.decoded[0] == api.decoded[1]


def test_lane_gives_llama_cpp_the_same_threads_for_prompts_and_for_text(api: FakeApi) -> None:
    LlamaCppEngine("a.gguf", 3, 640)
    assert vars(api.context_parameters) == {
        "n_ctx": 640,
        "n_seq_max": 1,
        "n_batch": 512,
        "n_ubatch": 512,
        "n_threads": 3,
        "n_threads_batch": 3,
    }


def test_lane_describes_llama_cpp_by_the_features_it_uses(api: FakeApi) -> None:
    ready = LlamaCppEngine("a.gguf", 1, 64).describe()
    assert (ready.engine, ready.version) == ("llama.cpp", "llama-cpp-python 0.3")
    assert (ready.route, ready.n_vocab) == ("AVX2 FMA", N_VOCAB)


def test_lane_says_which_file_llama_cpp_refused(api: FakeApi) -> None:
    api.model = None
    with pytest.raises(RuntimeError, match=r"llama.cpp cannot load a\.gguf"):
        LlamaCppEngine("a.gguf", 1, 64)


def test_lane_says_which_batch_llama_cpp_refused(api: FakeApi) -> None:
    engine = LlamaCppEngine("a.gguf", 1, 64)
    api.status = 1
    with pytest.raises(RuntimeError, match="llama_decode returned 1 for 2 tokens at position 0"):
        engine.measure([1, 2], 0)
