"""Directories of tiny models, one of each class: the converted file computes what its GGUF twin computes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emel
from emel.convert.converting import convert_directory
from emel.convert.errors import ConvertError
from emel.gguf import open_gguf
from emel.tensor.types import TensorType
from model.tiny_encoders import tiny_gemma_embedding, tiny_nomic_bert
from model.tiny_experts import (
    D_EXPERT,
    tiny_gpt_oss,
    tiny_granitemoe,
    tiny_lfm2,
    tiny_lfm2moe,
    tiny_mixtral,
    tiny_olmoe,
    tiny_qwen2moe,
    tiny_qwen3moe,
)
from model.tiny_models import (
    TinyModel,
    tiny_gemma2,
    tiny_gemma3,
    tiny_granite,
    tiny_mistral,
    tiny_olmo2,
    tiny_phi3,
    tiny_qwen2,
    tiny_qwen2_stretched,
    tiny_qwen3,
    tiny_smollm3,
    write_tiny_model,
)
from unit.convert.hf_models import (
    ATTENTION,
    FOUR_NORMS,
    GPT_OSS,
    GRANITE_MOE,
    LFM2,
    LFM2_MOE,
    MIXTRAL,
    NOMIC,
    PRE_NORM,
    QWEN_MOE,
    put_dense,
    write_directory,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

IDS = list(range(40, 60))
USUAL = ATTENTION | PRE_NORM


@dataclass(frozen=True)
class Case:
    hf_class: str
    tiny: TinyModel
    names: dict[str, str]
    more: dict[str, Any] = field(default_factory=dict)  # of config.json
    options: dict[str, Any] = field(default_factory=dict)  # of write_directory
    is_exact: bool = True


FACTORS = (("long", 12.0), ("short", 1.5))


def multipliers(tiny: TinyModel) -> dict[str, Any]:
    """Granite's."""
    names = {
        "embedding_scale": "embedding_multiplier",
        "attention.scale": "attention_multiplier",
        "residual_scale": "residual_multiplier",
        "logit_scale": "logits_scaling",
        "expert_shared_feed_forward_length": "shared_intermediate_size",
    }
    return {theirs: tiny.keys[ours] for ours, theirs in names.items() if ours in tiny.keys}


GEMMA = {"options": {"adds_one": True}, "is_exact": False}  # 1 is taken off and added: that rounds
PERMUTED: dict[str, Any] = {"permuted": True}
CASES = [
    Case("MistralForCausalLM", tiny_mistral(), USUAL, {"sliding_window": 16}, PERMUTED | {"n_shards": 3}),
    Case("MixtralForCausalLM", tiny_mixtral(), USUAL | MIXTRAL, {}, PERMUTED | {"experts": "block_sparse_moe.experts"}),
    Case("Qwen2ForCausalLM", tiny_qwen2(), USUAL),
    Case(
        "Qwen2ForCausalLM",
        tiny_qwen2_stretched(),
        USUAL,
        {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
    ),
    Case("Qwen3ForCausalLM", tiny_qwen3(), USUAL),
    Case("Qwen2MoeForCausalLM", tiny_qwen2moe(), USUAL | QWEN_MOE),
    Case("Qwen3MoeForCausalLM", tiny_qwen3moe(), USUAL | QWEN_MOE),
    Case("OlmoeForCausalLM", tiny_olmoe(), USUAL | QWEN_MOE),
    Case("Olmo2ForCausalLM", tiny_olmo2(), ATTENTION | FOUR_NORMS),
    Case(
        "Gemma2ForCausalLM",
        tiny_gemma2(),
        ATTENTION | FOUR_NORMS,
        {"sliding_window": 16, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        **GEMMA,  # type: ignore[arg-type]
    ),
    Case(
        "Gemma3ForCausalLM",
        tiny_gemma3(),
        ATTENTION | FOUR_NORMS,
        {"sliding_window": 16, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        **GEMMA,  # type: ignore[arg-type]
    ),
    Case("GraniteForCausalLM", tiny_granite(), USUAL, multipliers(tiny_granite()), PERMUTED),
    Case("GraniteMoeForCausalLM", tiny_granitemoe(), USUAL | GRANITE_MOE, multipliers(tiny_granitemoe()), PERMUTED),
    Case(
        "Phi3ForCausalLM",
        replace(tiny_phi3(), keys=tiny_phi3().keys | {"rope.scaling.attn_factor": (4 / 3) ** 0.5}),  # 64 to 256
        USUAL | {"ffn_up": "mlp.gate_up_proj"},
        {
            "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": 64,
            "rope_scaling": {
                "type": "longrope",
                **{f"{each}_factor": np.geomspace(1.0, largest, 24).tolist() for each, largest in FACTORS},
            },
        },
    ),
    Case(
        "Lfm2ForCausalLM",
        tiny_lfm2(),
        ATTENTION | LFM2 | {"token_embd_norm": "model.embedding_norm"},
        {"conv_L_cache": tiny_lfm2().keys["shortconv.l_cache"]},
    ),
    Case(
        "Lfm2MoeForCausalLM",
        tiny_lfm2moe(),
        ATTENTION | LFM2_MOE | {"token_embd_norm": "model.embedding_norm"},
        {
            "conv_L_cache": tiny_lfm2moe().keys["shortconv.l_cache"],
            "num_dense_layers": tiny_lfm2moe().keys["leading_dense_block_count"],
        },
        {"experts": "feed_forward.experts"},
    ),
    Case("SmolLM3ForCausalLM", tiny_smollm3(), USUAL, {}, PERMUTED),
    Case(
        "GptOssForCausalLM",
        tiny_gpt_oss(),
        ATTENTION | GPT_OSS,
        {
            "intermediate_size": D_EXPERT,
            "sliding_window": 16,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
            },
        },
    ),
]
ENCODERS = [
    Case(
        "NomicBertModel",
        tiny_nomic_bert(),
        NOMIC,
        {
            "activation_function": "swiglu",
            "rotary_emb_base": 1000,
            "layer_norm_epsilon": 1e-12,
            "type_vocab_size": 2,
            "max_trained_positions": 128,
        },
        {"prefix": "encoder.layers.{layer}."},
    ),
    Case(
        "Gemma3TextModel",
        tiny_gemma_embedding(),
        ATTENTION | FOUR_NORMS | {"token_embd": "embed_tokens", "output_norm": "norm"},
        {"sliding_window": 16, "use_bidirectional_attention": True, "rope_theta": 1e6},
        {"prefix": "layers.{layer}.", "adds_one": True},
        is_exact=False,
    ),
]
GPT2_NAMES = {
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
    "hidden_size": "n_embd",
    "intermediate_size": "n_inner",
    "num_attention_heads": "n_head",
}


def config_of(case: Case) -> dict[str, Any]:
    """config.json of a tiny model, from its GGUF metadata."""
    keys = case.tiny.keys
    config: dict[str, Any] = {
        "architectures": [case.hf_class],
        "num_hidden_layers": keys["block_count"],
        "max_position_embeddings": keys["context_length"],
        "hidden_size": keys["embedding_length"],
        "intermediate_size": keys["feed_forward_length"],
        "num_attention_heads": keys["attention.head_count"],
        "num_key_value_heads": keys["attention.head_count_kv"],
        "head_dim": keys["attention.key_length"],
        "rms_norm_eps": keys.get("attention.layer_norm_rms_epsilon"),
        "rope_theta": keys["rope.freq_base"],
    }
    others = {
        "expert_count": "num_local_experts",
        "expert_used_count": "num_experts_per_tok",
        "expert_feed_forward_length": "moe_intermediate_size",
        "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    }
    config |= {theirs: keys[ours] for ours, theirs in others.items() if ours in keys}
    kv_heads = keys["attention.head_count_kv"]
    if isinstance(kv_heads, list):  # layers without attention
        config["num_key_value_heads"] = max(kv_heads)
        config["layer_types"] = ["full_attention" if each else "conv" for each in kv_heads]
    return config | case.more


def logits(path: Path) -> NDArray[np.float32]:
    with emel.load(path, n_ctx=64, n_threads=1, n_lanes=1) as model:
        return model.logits(IDS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.hf_class}-{case.tiny.architecture}")
def test_converted_directories_compute_what_their_twins_compute(tmp_path: Path, case: Case) -> None:
    twin, out = tmp_path / "twin.gguf", tmp_path / "out.gguf"
    write_tiny_model(twin, case.tiny, "F32")
    write_directory(tmp_path / "hf", twin, case.names, config_of(case), **case.options)
    convert_directory(tmp_path / "hf", out, "f32")
    expected, found = logits(twin), logits(out)
    if case.is_exact:
        assert np.array_equal(found, expected)
    else:
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-3)


def embedding(path: Path) -> NDArray[np.float32]:
    with emel.load(path, n_threads=1) as model:
        return model.embed(IDS, normalize=False)[0]


@pytest.mark.parametrize("case", ENCODERS, ids=lambda case: case.hf_class)
def test_converted_encoders_compute_what_their_twins_compute(tmp_path: Path, case: Case) -> None:
    twin, out = tmp_path / "twin.gguf", tmp_path / "out.gguf"
    write_tiny_model(twin, case.tiny, "F32")
    config = config_of(case)
    if case.hf_class == "NomicBertModel":
        config = {GPT2_NAMES.get(key, key): value for key, value in config.items()}
    write_directory(tmp_path / "hf", twin, case.names, config, **case.options)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word"]
    (tmp_path / "hf" / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    convert_directory(tmp_path / "hf", out, "f32")
    expected, found = embedding(twin), embedding(out)
    if case.is_exact:
        assert np.array_equal(found, expected)
    else:
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-3)
    with open_gguf(out) as file:
        assert file.metadata.get_int(f"{case.tiny.architecture}.pooling_type") == 1
        is_nomic = case.hf_class == "NomicBertModel"
        assert file.metadata.get_int(f"{case.tiny.architecture}.context_length") == (128 if is_nomic else 256)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of a Llama with two layers."""
    folder = tmp_path_factory.mktemp("llama")
    case = Case("LlamaForCausalLM", tiny_mistral(), USUAL)
    write_tiny_model(folder / "twin.gguf", case.tiny, "F32")
    write_directory(folder / "hf", folder / "twin.gguf", USUAL, config_of(case), permuted=True)
    return folder / "hf"


def copy_with(source: Path, target: Path, **changes: object) -> Path:
    """The directory with other values in config.json; None takes a key away."""
    target.mkdir()
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    config = json.loads((target / "config.json").read_text(encoding="utf-8")) | changes
    (target / "config.json").write_text(
        json.dumps({key: value for key, value in config.items() if value is not None}), encoding="utf-8"
    )
    return target


@pytest.mark.parametrize(("out_type", "kind"), [("f16", "F16"), ("bf16", "BF16"), ("q8_0", "Q8_0")])
def test_matrices_get_the_wanted_type_and_norms_stay_exact(
    llama: Path, tmp_path: Path, out_type: str, kind: str
) -> None:
    seen: list[Any] = []
    convert_directory(llama, tmp_path / "out.gguf", out_type, report=seen.append)
    with open_gguf(tmp_path / "out.gguf") as file:
        assert file.tensors["blk.0.ffn_up.weight"].type is TensorType[kind]
        assert file.tensors["blk.0.ffn_norm.weight"].type is TensorType.F32
        assert [each.name for each in seen] == list(file.tensors)
    assert np.isfinite(logits(tmp_path / "out.gguf")).all()


def test_vocabulary_and_special_tokens_come_along(llama: Path, tmp_path: Path) -> None:
    convert_directory(llama, tmp_path / "out.gguf")
    with emel.load(tmp_path / "out.gguf", n_ctx=64, n_threads=1, n_lanes=1) as model:
        assert model.tokenize("the thing<tool>", add_special=False) == [256, 101, 32, 256, 105, 110, 103, 258]
        assert model.tokenize("<|end|>", parse_special=True, add_special=False) == [257]
        assert len(model.tokenize("<|end|>", add_special=False)) == 7
    with open_gguf(tmp_path / "out.gguf") as file:
        assert file.metadata.get_str("tokenizer.ggml.pre") == "gpt-2"
        assert file.metadata.get_strings("tokenizer.ggml.tokens")[499] == "[PAD499]"


def test_bfloat16_weights_are_read_exactly(tmp_path: Path) -> None:
    from emel.convert.hf_files import read_tensors

    values = np.array([[1.0, -2.5, 3e38, 1e-30]], dtype=np.float32)
    bits = (values.view(np.uint32) >> 16).astype("<u2")
    header = json.dumps({"x": {"dtype": "BF16", "shape": [1, 4], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bits.tobytes())
    found = read_tensors(tmp_path)["x"].load()
    assert np.array_equal(found.view(np.uint32), bits.astype(np.uint32) << 16)


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        (
            {"architectures": ["T5Model"]},
            r"^models of class 'T5Model' are not converted: known are BertModel, ",
        ),
        ({"hidden_size": None}, r"^config.json has hidden_size None: a whole number is needed$"),
        (
            {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
            r"^config.json stretches contexts by 'dynamic': default, linear, llama3, longrope, yarn are known$",
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 2.0, "truncate": False}},
            r"^config.json stretches contexts by yarn with mscale None and truncate False: supported are None",
        ),
        ({"architectures": ["Gemma3TextModel"]}, r"converted only with use_bidirectional_attention true$"),
        ({"use_sliding_window": True}, r"^config.json has use_sliding_window true: only false is supported$"),
    ],
)
def test_configurations_that_are_not_supported_are_refused(
    llama: Path, tmp_path: Path, changes: dict[str, Any], seen: str
) -> None:
    folder = copy_with(llama, tmp_path / "hf", **changes)
    with pytest.raises(ConvertError, match=seen):
        convert_directory(folder, tmp_path / "out.gguf")
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    ("missing", "seen"),
    [
        ("config.json", r"config.json' is missing: a Hugging Face model directory has it$"),
        (
            "model.safetensors",
            r"has no .safetensors files\nhint: weights in pickles \(.bin\) are not read: convert them first$",
        ),
        ("tokenizer.json", r"has neither tokenizer.json nor tokenizer.model$"),
    ],
)
def test_missing_files_are_named(llama: Path, tmp_path: Path, missing: str, seen: str) -> None:
    folder = copy_with(llama, tmp_path / "hf")
    (folder / missing).unlink()
    with pytest.raises(ConvertError, match=seen):
        convert_directory(folder, tmp_path / "out.gguf")


def test_dense_modules_of_models_that_have_none_are_refused(llama: Path, tmp_path: Path) -> None:
    folder = copy_with(llama, tmp_path / "hf")
    put_dense(folder, 2, np.zeros((8, 8), np.float32))
    with pytest.raises(ConvertError, match=r"^modules.json has a Dense module behind the pooling, which is not"):
        convert_directory(folder, tmp_path / "out.gguf")


def test_decoders_that_sentence_transformers_pool_say_so(llama: Path, tmp_path: Path) -> None:
    folder = copy_with(llama, tmp_path / "hf")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}', encoding="utf-8")
    convert_directory(folder, tmp_path / "out.gguf", "f32")
    with open_gguf(tmp_path / "out.gguf") as file:
        assert file.metadata.get_int("llama.pooling_type") == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": None},
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": "2"},
        {"num_attention_heads": None},
        {"num_attention_heads": 3},
        {"num_key_value_heads": float("nan")},
        {"head_dim": float("inf")},
        {"head_dim": {"a": 1}},
        {"hidden_size": -1},
        {"architectures": [{}]},
        {"architectures": {"a": 1}},
        {"rms_norm_eps": "gelu"},
        {"rope_scaling": [1]},
        {"rope_parameters": {"rope_type": "longrope", "short_factor": [1], "long_factor": "x"}},
    ],
)
def test_values_of_unusual_kinds_are_refused(llama: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = copy_with(llama, tmp_path / "hf", **changes)
    with pytest.raises(ConvertError, match=r"cannot be understood|are not converted|1 to 4096 are allowed"):
        convert_directory(folder, tmp_path / "out.gguf", "f32")
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"model": 1.5},
        {"model": {"type": "BPE", "vocab": [1], "merges": [["t", "h"]]}},
        {"pre_tokenizer": 10},
        {"added_tokens": 10},
        {"added_tokens": {"a": 1}},
        {"added_tokens": [{"content": "x"}]},
        {"added_tokens": [{"id": 257, "content": {}, "special": True}]},
    ],
)
def test_tokenizers_of_unusual_kinds_are_refused(llama: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = copy_with(llama, tmp_path / "hf")
    found = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    (folder / "tokenizer.json").write_text(json.dumps(found | changes), encoding="utf-8")
    with pytest.raises(ConvertError, match="cannot be understood"):
        convert_directory(folder, tmp_path / "out.gguf", "f32")
    assert not (tmp_path / "out.gguf").exists()


def test_truncated_weights_are_refused_by_tensor(llama: Path, tmp_path: Path) -> None:
    folder = copy_with(llama, tmp_path / "hf")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ConvertError, match=r"model.safetensors' ends before tensor '.*' does: fetch it again$"):
        convert_directory(folder, tmp_path / "out.gguf")
    assert not list(tmp_path.glob("out*"))


def test_unknown_types_are_refused(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=r"^type 'q4_0' is unknown: allowed are f32, f16, bf16, q8_0$"):
        convert_directory(llama, tmp_path / "out.gguf", "q4_0")
