from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emel.model.encoder import split_qkv
from emel.model.errors import ModelError
from emel.model.pooling import Pooling
from emel.tensor.types import TensorType
from unit.model.described import info, parameters_of, shapes_of

if TYPE_CHECKING:
    from pathlib import Path

TYPES = info("token_types.weight", 2, 64)


@pytest.mark.parametrize("architecture", ["bert", "nomic-bert", "gemma-embedding"])
def test_encoders_say_how_wide_their_embeddings_are(tmp_path: Path, architecture: str) -> None:
    parameters = parameters_of(tmp_path, architecture)
    assert (parameters.embedding_width, parameters.state, parameters.pooling) == (64, None, Pooling.MEAN)


@pytest.mark.parametrize(
    ("pooling_type", "pooling"), [(0, Pooling.MEAN), (1, Pooling.MEAN), (2, Pooling.CLS), (3, Pooling.LAST)]
)
def test_pooling_is_the_one_of_the_file(tmp_path: Path, pooling_type: int, pooling: Pooling) -> None:
    assert parameters_of(tmp_path, "bert", pooling_type=pooling_type).pooling is pooling


def test_types_are_expected_where_a_file_has_them(tmp_path: Path) -> None:
    assert shapes_of("bert", parameters_of(tmp_path, "bert", TYPES))["token_types.weight"] == (2, 64)
    shapes = shapes_of("bert", parameters_of(tmp_path, "bert"))
    assert "token_types.weight" not in shapes
    assert shapes["position_embd.weight"] == (128, 64)
    assert "position_embd.weight" not in shapes_of("nomic-bert", parameters_of(tmp_path, "nomic-bert"))


def test_gemma_embedding_ends_in_the_matrices_a_file_has(tmp_path: Path) -> None:
    dense = (info("dense_2.weight", 256, 64), info("dense_3.weight", 48, 256))
    parameters = parameters_of(tmp_path, "gemma-embedding", *dense)
    assert parameters.embedding_width == 48
    shapes = shapes_of("gemma-embedding", parameters)
    assert (shapes["dense_2.weight"], shapes["dense_3.weight"]) == ((256, 64), (48, 256))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"pooling_type": 4}, r"'bert.pooling_type' is 4: EMEL knows 1 \(mean\), 2 \(cls\) and 3 \(last\)"),
        ({"attention.causal": True}, "'bert.attention.causal' is true: EMEL knows bert models only as encoders"),
        ({"attention.layer_norm_epsilon": 0.0}, "'bert.attention.layer_norm_epsilon' is 0.0: it must be positive"),
    ],
)
def test_encoders_that_cannot_be_are_refused(tmp_path: Path, keys: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        parameters_of(tmp_path, "bert", **keys)


def test_joined_queries_keys_and_values_are_taken_apart(tmp_path: Path) -> None:
    parameters = parameters_of(tmp_path, "nomic-bert")
    joined = [
        info("blk.1.attn_qkv.weight", 192, 64, offset=4096, type_=TensorType.F16),
        info("blk.1.attn_qkv.bias", 192, offset=128),
        TYPES,
    ]
    seen = split_qkv(parameters, {each.name: each for each in joined})
    assert set(seen) == {"token_types.weight"} | {
        f"blk.1.attn_{x}.{kind}" for x in "qkv" for kind in ("weight", "bias")
    }
    key, bias = seen["blk.1.attn_k.weight"], seen["blk.1.attn_v.bias"]
    assert (key.shape, key.offset, key.n_bytes) == ((64, 64), 4096 + 64 * 128, 64 * 128)
    assert (bias.shape, bias.offset, bias.n_bytes) == ((64,), 128 + 2 * 64 * 4, 64 * 4)


@pytest.mark.parametrize("shape", [(191, 64), (191,)])
def test_joined_tensors_of_another_size_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    parameters = parameters_of(tmp_path, "nomic-bert")
    name = f"blk.0.attn_qkv.{'weight' if len(shape) > 1 else 'bias'}"
    wanted = str((192, *shape[1:])).replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(ModelError, match=f"{name}' has shape .* the metadata asks for {wanted}"):
        split_qkv(parameters, {name: info(name, *shape)})
