"""Model.embed, by a tiny encoder with a vocabulary of bytes; the numbers themselves are tested in tests/model."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emel
from emel.engine.embedding import MAX_TEXTS, normalized
from emel.model.pooling import Pooling
from model.tiny_encoders import ENCODER_MODELS
from model.tiny_experts import HYBRID_MODELS
from model.tiny_models import D_MODEL, N_CTX, TINY_MODELS, write_tiny_model
from unit.engine.test_forecast import least_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from model.tiny_models import TinyModel

TEXTS = ("one", "another text", "x" * (N_CTX - 2), "", "Grüße")


@pytest.fixture(scope="module")
def encoder_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("encoder") / "bert.gguf"
    write_tiny_model(path, ENCODER_MODELS["bert"](), "Q8_0")
    return path


@pytest.fixture(scope="module")
def encoder(encoder_path: Path) -> Iterator[emel.Model]:
    with emel.load(encoder_path, n_threads=1) as model:
        yield model


def test_embed_gives_a_row_of_length_one_for_each_text(encoder: emel.Model) -> None:
    texts = [text for text in TEXTS if text]
    embeddings = encoder.embed(texts)
    assert (embeddings.shape, embeddings.dtype) == ((len(texts), D_MODEL), np.float32)
    assert np.abs(np.linalg.norm(embeddings.astype(np.float64), axis=1) - 1.0).max() < 1e-7
    assert len({row.tobytes() for row in embeddings}) == len(texts)


def test_embed_takes_one_text_ids_or_several_of_either(encoder: emel.Model) -> None:
    (expected,) = encoder.embed("another text")
    ids = encoder.tokenize("another text")
    for given in (["another text"], b"another text", ids, [ids], tuple(ids), np.array(ids), iter([ids])):
        assert np.array_equal(encoder.embed(given), expected[None]), given
    mixed: list[Any] = ["one", ids]
    assert np.array_equal(encoder.embed(mixed)[1], expected)


def test_embed_gives_the_same_bits_in_lists_of_any_length(encoder: emel.Model) -> None:
    many = [f"text {index}" for index in range(2 * MAX_TEXTS + 3)]
    embeddings = encoder.embed(many)
    for index in (0, MAX_TEXTS - 1, MAX_TEXTS, len(many) - 1):
        assert np.array_equal(encoder.embed(many[index])[0], embeddings[index])


def test_embed_may_leave_lengths_as_they_are(encoder: emel.Model) -> None:
    plain, unit = encoder.embed("one", normalize=False)[0], encoder.embed("one")[0]
    assert not np.isclose(np.linalg.norm(plain), 1.0)
    assert np.array_equal(unit, np.array(normalized(plain.tolist()), np.float32))


def test_embed_pools_as_asked(encoder: emel.Model) -> None:
    rows = {pooling: encoder.embed("another text", pooling=pooling).tobytes() for pooling in ("mean", "cls", "last")}
    assert len(set(rows.values())) == 3
    assert encoder.embed("another text").tobytes() == rows["mean"]
    assert {each.value for each in Pooling} == set(rows)


def test_embed_of_no_texts_is_empty(encoder: emel.Model) -> None:
    assert encoder.embed([]).shape == (0, D_MODEL)


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (3, {}, "the texts are of type int: give a str, token ids, or a list of either"),
        (["one", ""], {}, "text 1 has no tokens: give at least one character"),
        ([[]], {}, "text 0 has no tokens"),
        (["one", "x" * (N_CTX + 1)], {}, f"text 1 has {N_CTX + 1} tokens: this model takes {N_CTX}"),
        ([[500]], {}, "token id 500 is outside the vocabulary: allowed are 0 to 499"),
        ([[1, 2.5]], {}, "token 1 is 2.5: it must be a whole number"),
        (["one", 3], {}, "the token ids are 3: they must be a sequence of whole numbers"),
        ("one", {"pooling": "max"}, "pooling is 'max': it must be one of 'mean', 'cls', 'last', or None"),
        ("one", {"pooling": 1}, "pooling is 1: it must be one of"),
    ],
)
def test_embed_says_what_is_wrong_with_texts(
    encoder: emel.Model, texts: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(emel.RequestError) as caught:
        encoder.embed(texts, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model.generate("x"),
        lambda model: model.generate_ids([1]),
        lambda model: next(iter(model.stream("x"))),
        lambda model: model.chat([{"role": "user", "content": "x"}]),
        lambda model: model.achat([{"role": "user", "content": "x"}]),
        lambda model: model.session(),
        lambda model: model.logits([1]),
        lambda model: model.measure([1], 1),
        lambda model: model.chat_many([]),
        lambda model: model.chat_template,
    ],
)
def test_encoders_write_no_text(encoder: emel.Model, call: Callable[[emel.Model], object]) -> None:
    with pytest.raises(
        emel.RequestError, match=r"this model \(bert\) is an encoder: it has embeddings, but writes no text"
    ):
        call(encoder)


def test_models_that_write_text_pool_as_asked(shared_model: emel.Model) -> None:
    with pytest.raises(emel.RequestError, match=r"this model writes text, and its file names no pooling") as caught:
        shared_model.embed("x")
    assert "'mean', 'cls', 'last'" in str(caught.value)
    rows = {pooling: shared_model.embed("some text", pooling=pooling)[0] for pooling in ("mean", "cls", "last")}
    assert len({row.tobytes() for row in rows.values()}) == 3
    assert all(abs(np.linalg.norm(row) - 1.0) < 1e-6 for row in rows.values())


def test_files_of_models_that_write_text_may_name_a_pooling(tmp_path: Path) -> None:
    path = tmp_path / "embedding.gguf"
    model = TINY_MODELS["qwen3"]()
    write_tiny_model(path, replace(model, keys=model.keys | {"pooling_type": 3}), "Q8_0")
    with emel.load(path, n_threads=1) as loaded:
        assert np.array_equal(loaded.embed("some text"), loaded.embed("some text", pooling="last"))
        assert loaded.generate("x", max_tokens=1).finish_reason in ("length", "stop")


@pytest.mark.parametrize("model", [ENCODER_MODELS["bert"], TINY_MODELS["qwen3"], HYBRID_MODELS["lfm2"]])
def test_embed_with_streamed_weights_gives_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Callable[[], TinyModel]
) -> None:
    monkeypatch.setattr("emel.model.residency._READER_BYTES", 0)  # more than a tiny model has
    path = tmp_path / "model.gguf"
    write_tiny_model(path, model(), "F32")
    with emel.load(path, n_threads=1) as resident:
        expected = resident.embed(["one", "another text"], pooling="mean")
    with emel.load(path, n_threads=1, memory=least_of(path)) as streamed:
        assert streamed.engine.is_streaming
        assert np.array_equal(streamed.embed(["one", "another text"], pooling="mean"), expected)


def test_embed_of_a_closed_model_is_refused(encoder_path: Path) -> None:
    model = emel.load(encoder_path, n_threads=1)
    model.embed("one")
    model.close()
    with pytest.raises(emel.RequestError, match="this model is closed"):
        model.embed("one")


def test_embed_names_the_layer_of_values_that_are_not_finite(tmp_path: Path) -> None:
    path = tmp_path / "damaged.gguf"
    write_tiny_model(path, ENCODER_MODELS["bert"](), "F32")
    import gguf

    reader = gguf.GGUFReader(path, "r+")
    tensor = next(each for each in reader.tensors if each.name == "blk.1.ffn_down.bias")
    tensor.data[3] = np.nan
    reader.data.flush()
    with emel.load(path, n_threads=1) as model, pytest.raises(emel.RequestError) as caught:
        model.embed("one")
    assert "a value first stopped being finite in layer 1; the model file is likely damaged" in str(caught.value)


def test_embed_from_many_threads_gives_the_same_bits(encoder: emel.Model) -> None:
    expected = {text: encoder.embed(text).tobytes() for text in ("one", "another text", "Grüße")}
    found: list[tuple[str, bytes]] = []

    def work(text: str) -> None:
        found.extend((text, encoder.embed(text).tobytes()) for _ in range(5))

    threads = [threading.Thread(target=work, args=(text,)) for text in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 15
    assert all(expected[text] == row for text, row in found)


def test_normalized_has_length_one_or_stays_zero() -> None:
    assert normalized([3.0, 4.0]) == [0.6, 0.8]
    assert normalized([0.0, 0.0]) == [0.0, 0.0]
