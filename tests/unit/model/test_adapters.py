"""LoRA adapters: the bits of a model with one are those of a model whose file has the sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize

import emel
from emel.convert.writing import GgufOutput, copy_metadata
from emel.errors import ModelLoadError, RequestError
from emel.gguf import open_gguf
from emel.tensor.types import TensorType
from model.gguf_writing import finish
from model.tiny_experts import tiny_mixtral
from model.tiny_llama import Geometry, write_tiny_llama
from model.tiny_models import tiny_phi3, write_tiny_model

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Pair = tuple[NDArray[np.float32], NDArray[np.float32]]

IDS = list(range(40, 52))
RANK = 3


def pair_for(shape: tuple[int, ...], seed: int = 0) -> Pair:
    """A and B for a matrix of this shape."""
    random = np.random.default_rng(seed)
    *experts, rows, cols = shape
    a, b = random.normal(0, 0.3, (*experts, RANK, cols)), random.normal(0, 0.3, (*experts, rows, RANK))
    return a.astype(np.float32), b.astype(np.float32)


def write_adapter(
    path: Path, pairs: Mapping[str, Pair], *, alpha: float | None = 6.0, architecture: str = "llama", **more: str
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in {"general.type": "adapter", "adapter.type": "lora", **more}.items():
        writer.add_string(key.replace("__", "."), value)
    if alpha is not None:
        writer.add_float32("adapter.lora.alpha", alpha)
    for name, (a, b) in pairs.items():
        writer.add_tensor(f"{name}.lora_a", a)
        writer.add_tensor(f"{name}.lora_b", b)
    finish(writer)
    return path


def product(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """b a, rank by rank in float32."""
    total = b[..., :, 0, None] * a[..., None, 0, :]
    for rank in range(1, a.shape[-2]):
        total = total + b[..., :, rank, None] * a[..., None, rank, :]
    return total


def write_merged(path: Path, source: Path, sums: Mapping[str, NDArray[np.float32]]) -> Path:
    """A copy of `source` in which the matrices `sums` names have it added, as F16 (or F32 where they were)."""
    tensors = {each.name: each for each in gguf.GGUFReader(source).tensors}
    with open_gguf(source) as file, GgufOutput(path, file.metadata.get_str("general.architecture")) as output:
        copy_metadata(file, output)
        kept = {
            name: info.type if name not in sums or info.type is TensorType.F32 else TensorType.F16
            for name, info in file.tensors.items()
        }
        for name, info in file.tensors.items():
            output.declare(name, info.shape, kept[name])
        output.begin()
        for name in file.tensors:
            data = np.asarray(tensors[name].data)
            if name in sums:
                whole = dequantize(data, tensors[name].tensor_type) + sums[name]
                data = whole.astype(np.float32 if kept[name] is TensorType.F32 else np.float16)
            output.add(bytearray(data.tobytes()))
            output.end_tensor()
    return path


def logits(path: Path, **options: object) -> NDArray[np.float32]:
    with emel.load(path, n_ctx=64, n_threads=2, n_lanes=1, **options) as model:  # type: ignore[arg-type]
        return model.logits(IDS)


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    write_tiny_llama(tmp_path / "llama.gguf", Geometry(), "Q4_1")
    return tmp_path / "llama.gguf"


QUERY, DOWN, EMBEDDING = "blk.0.attn_q.weight", "blk.1.ffn_down.weight", "token_embd.weight"


@pytest.mark.parametrize("weight_type", ["F32", "F16", "Q8_0", "Q4_1"])
def test_adapted_models_have_the_bits_of_merged_files(tmp_path: Path, weight_type: str) -> None:
    source = tmp_path / "llama.gguf"
    write_tiny_llama(source, Geometry(), weight_type)
    query, down = pair_for((256, 128)), pair_for((128, 192), seed=1)
    adapter = write_adapter(tmp_path / "lora.gguf", {QUERY: query, DOWN: down}, alpha=6.0)
    factor = np.float32(0.5 * 6.0 / RANK)
    sums = {QUERY: factor * product(*query), DOWN: factor * product(*down)}
    merged = write_merged(tmp_path / "merged.gguf", source, sums)
    found = logits(source, lora=[(adapter, 0.5)])
    assert np.array_equal(found, logits(merged))
    assert not np.allclose(found, logits(source), rtol=0.1)


@pytest.mark.parametrize("name", [QUERY, DOWN, EMBEDDING])
def test_adapted_models_are_streamed_with_the_same_bits(
    llama: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the adapter changes stays in memory."""
    for each in ("_READER_BYTES", "N_LANES"):  # reading takes more than a tiny model has
        monkeypatch.setattr(f"emel.model.residency.{each}", 0)
    with open_gguf(llama) as file:
        rows, cols = file.tensors[name].shape
    a, b = pair_for((rows, cols))
    adapter = write_adapter(
        tmp_path / "lora.gguf", {name: (b, np.ascontiguousarray(a.T)) if name == EMBEDDING else (a, b)}
    )
    expected = logits(llama, lora=[adapter])
    with pytest.raises(ModelLoadError, match=r"^1 bytes of memory are too few: \d+ are the least") as caught:
        logits(llama, lora=[adapter], memory=1)
    least = int(str(caught.value).split(" are the least")[0].split()[-1])
    with emel.load(llama, n_ctx=64, n_threads=2, n_lanes=1, lora=[adapter], memory=least) as model:
        residency = model._open().model.residency
        assert residency is not None
        assert name in residency.kept
        assert np.array_equal(model.logits(IDS), expected)


@pytest.mark.parametrize("name", ["ffn_up_exps", "attn_q"])
def test_adapted_mixtures_are_streamed_with_the_same_bits(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All experts of a layer stay where an adapter changes one of their matrices."""
    monkeypatch.setattr("emel.model.residency._READER_BYTES", 0)
    source, name = tmp_path / "model.gguf", f"blk.1.{name}.weight"
    write_tiny_model(source, tiny_mixtral(), "Q8_0")
    with open_gguf(source) as file:
        adapter = write_adapter(tmp_path / "lora.gguf", {name: pair_for(file.tensors[name].shape)})
    expected = logits(source, lora=[adapter])
    with pytest.raises(ModelLoadError, match="are the least") as caught:
        logits(source, lora=[adapter], memory=1)
    least = int(str(caught.value).split(" are the least")[0].split()[-1])
    with emel.load(source, n_ctx=64, n_threads=2, n_lanes=1, lora=[adapter], memory=least) as model:
        residency = model._open().model.residency
        assert residency is not None
        stay = {group.extents[0].name for group in residency.experts}
        assert ("blk.1.ffn_gate_exps.weight" in stay) == (name == "blk.1.attn_q.weight")
        assert np.array_equal(model.logits(IDS), expected)


def test_several_adapters_are_added_in_order(llama: Path, tmp_path: Path) -> None:
    first, second = pair_for((256, 128)), pair_for((256, 128), seed=1)
    paths = [write_adapter(tmp_path / f"{n}.gguf", {QUERY: each}) for n, each in enumerate((first, second))]
    two = np.float32(6.0 / RANK)
    tensor = next(each for each in gguf.GGUFReader(llama).tensors if each.name == QUERY)
    base = dequantize(tensor.data, tensor.tensor_type)
    sums = (base + two * product(*first)) + np.float32(-2 * 6.0 / RANK) * product(*second) - base
    found = logits(llama, lora=[paths[0], (str(paths[1]), -2)])
    merged = logits(write_merged(tmp_path / "merged.gguf", llama, {QUERY: sums}))
    assert found == pytest.approx(merged, abs=2e-2)  # the sums above are rounded once more
    assert not np.allclose(found, logits(llama, lora=[paths[0]]), atol=0.1)


def test_an_adapter_without_alpha_is_scaled_by_its_scale_alone(llama: Path, tmp_path: Path) -> None:
    pairs = {QUERY: pair_for((256, 128))}
    plain = write_adapter(tmp_path / "plain.gguf", pairs, alpha=None)
    as_rank = write_adapter(tmp_path / "rank.gguf", pairs, alpha=float(RANK))
    assert np.array_equal(logits(llama, lora=[(plain, 0.7)]), logits(llama, lora=[(as_rank, 0.7)]))


def test_the_embeddings_pair_is_the_other_way_round(llama: Path, tmp_path: Path) -> None:
    a, b = pair_for((320, 128))
    adapter = write_adapter(tmp_path / "lora.gguf", {EMBEDDING: (b, np.ascontiguousarray(a.T))})
    merged = write_merged(tmp_path / "merged.gguf", llama, {EMBEDDING: np.float32(6.0 / RANK) * product(a, b)})
    assert np.array_equal(logits(llama, lora=[adapter]), logits(merged))


@pytest.mark.parametrize(
    ("tiny", "name", "architecture"),
    [(tiny_phi3(), "blk.0.attn_qkv.weight", "phi3"), (tiny_phi3(), "blk.1.ffn_up.weight", "phi3")]
    + [(tiny_mixtral(), f"blk.0.ffn_{each}_exps.weight", "llama") for each in ("up", "down")],
)
def test_split_matrices_and_experts_are_adapted_whole(
    tmp_path: Path, tiny: object, name: str, architecture: str
) -> None:
    source = tmp_path / "model.gguf"
    write_tiny_model(source, tiny, "Q8_0")  # type: ignore[arg-type]
    with open_gguf(source) as file:
        pair = pair_for(file.tensors[name].shape)
    adapter = write_adapter(tmp_path / "lora.gguf", {name: pair}, architecture=architecture)
    merged = write_merged(tmp_path / "merged.gguf", source, {name: np.float32(6.0 / RANK) * product(*pair)})
    assert np.array_equal(logits(source, lora=[adapter]), logits(merged))


def test_an_adapter_of_scale_zero_changes_nothing(llama: Path, tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "lora.gguf", {QUERY: pair_for((256, 128))})
    assert np.array_equal(logits(llama, lora=[(adapter, 0)]), logits(llama))


def test_fingerprints_tell_adapters_and_scales_apart(llama: Path, tmp_path: Path) -> None:
    first, second = (write_adapter(tmp_path / f"{seed}.gguf", {QUERY: pair_for((256, 128), seed)}) for seed in range(2))
    fingerprints = set()
    for lora in ([], [first], [second], [(first, 0.5)], [first, second]):
        with emel.load(llama, n_ctx=64, n_threads=1, n_lanes=1, lora=lora) as model:
            fingerprints.add(model.fingerprint)
    assert len(fingerprints) == 5


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({"general.type": "model"}, r"^'.*lora.gguf' is a model: a LoRA adapter is wanted"),
        ({"adapter.type": "dora"}, r"^adapter '.*' is of type 'dora': 'lora' is supported$"),
        ({"architecture": "qwen2"}, r"^adapter '.*' is for 'qwen2' models: this one is 'llama'$"),
        (
            {"adapter.alora.invocation_tokens": "x"},
            r"^adapter '.*' is switched on by tokens of the prompt \(aLoRA\), which EMEL does not do$",
        ),
    ],
)
def test_other_kinds_of_files_are_refused_by_what_they_are(
    llama: Path, tmp_path: Path, changes: dict[str, str], seen: str
) -> None:
    adapter = write_adapter(tmp_path / "lora.gguf", {QUERY: pair_for((256, 128))}, **changes)  # type: ignore[arg-type]
    with pytest.raises(ModelLoadError, match=seen):
        emel.load(llama, lora=[adapter])


A, B = pair_for((256, 128))
UNFIT = [
    (
        {f"{QUERY}.lora_a": A, f"{QUERY}.lora_b": B[:200]},
        r"has shapes \(3, 128\) and \(200, 3\) for tensor '.*', which",
    ),
    ({f"{QUERY}.lora_a": A[:2], f"{QUERY}.lora_b": B}, r"has shapes \(2, 128\) and \(256, 3\) for tensor"),
    ({f"{QUERY}.lora_a": B, f"{QUERY}.lora_b": A}, r"which is \(256, 128\): it was made for another model$"),
    ({"blk.9.attn_q.weight.lora_a": A, "blk.9.attn_q.weight.lora_b": B}, r"is for tensor 'blk.9.attn_q.weight', which"),
    ({f"{QUERY}.lora_a": A}, r"has 'blk.0.attn_q.weight.lora_a' but no 'blk.0.attn_q.weight.lora_b'$"),
    ({f"{QUERY}.lora_b": B}, r"has 'blk.0.attn_q.weight.lora_b' but no 'blk.0.attn_q.weight.lora_a'$"),
    (
        {"blk.0.attn_norm.weight": A[0]},
        r"has tensor 'blk.0.attn_norm.weight': pairs of NAME.lora_a and NAME.lora_b are",
    ),
    (
        {f"{QUERY}.lora_a": A * 1e5, f"{QUERY}.lora_b": B * 1e5},
        r"^tensor '.*' with its adapters has values that are not",
    ),
]


@pytest.mark.parametrize(("tensors", "seen"), UNFIT)
def test_adapters_that_do_not_fit_are_refused_by_name(
    llama: Path, tmp_path: Path, tensors: dict[str, NDArray[np.float32]], seen: str
) -> None:
    writer = gguf.GGUFWriter(tmp_path / "lora.gguf", "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    finish(writer)
    with pytest.raises(ModelLoadError, match=seen):
        emel.load(llama, lora=[tmp_path / "lora.gguf"])


@pytest.mark.parametrize(
    ("lora", "seen"),
    [
        ("lora.gguf", r"^lora is 'lora.gguf': it must be a list of paths, or of \(path, scale\)$"),
        ([3], r"^an adapter is 3: it must be a path, or \(path, scale\)$"),
        ([("x.gguf", "1")], r"^an adapter is \('x.gguf', '1'\): it must be a path, or \(path, scale\)$"),
        ([("x.gguf", True)], r"^an adapter is \('x.gguf', True\): it must be a path, or \(path, scale\)$"),
    ],
)
def test_anything_but_paths_is_refused(llama: Path, lora: object, seen: str) -> None:
    with pytest.raises(RequestError, match=seen):
        emel.load(llama, lora=lora)  # type: ignore[arg-type]


def test_a_scale_that_is_not_finite_is_refused(llama: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"^the scale of adapter 'x.gguf' is nan: it must be finite$"):
        emel.load(llama, lora=[("x.gguf", float("nan"))])


def test_a_scale_beyond_float32_is_refused_without_a_warning(llama: Path, tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "lora.gguf", {QUERY: pair_for((256, 128))})
    with pytest.raises(ModelLoadError, match="not finite: try a smaller scale"):
        emel.load(llama, lora=[(adapter, 1e300)])


def test_adapters_that_are_not_there_are_named(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(emel.ModelReadError, match=r"nowhere\.gguf"):
        emel.load(llama, lora=[tmp_path / "nowhere.gguf"])
