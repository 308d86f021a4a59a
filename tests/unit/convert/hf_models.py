"""Hugging Face directories of tiny random models, written by the safetensors package from their GGUF twins.

`write_directory` names the tensors of a tiny GGUF model as transformers does, and undoes what GGUF stores differently.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from safetensors.numpy import save_file

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

LAYER = "model.layers.{layer}."
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
ATTENTION = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
HEADS = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
PRE_NORM = {"ffn_norm": "post_attention_layernorm"}
FOUR_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
MIXTRAL = {"ffn_gate_inp": "block_sparse_moe.gate", "ffn_gate_exps": "w1", "ffn_down_exps": "w2", "ffn_up_exps": "w3"}
QWEN_MOE = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "gate_proj",
    "ffn_down_exps": "down_proj",
    "ffn_up_exps": "up_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
GRANITE_MOE = {
    "ffn_gate_inp": "block_sparse_moe.router.layer",
    "ffn_gate_exps": "block_sparse_moe.input_linear",
    "ffn_up_exps": "block_sparse_moe.input_linear",
    "ffn_down_exps": "block_sparse_moe.output_linear",
    "ffn_gate_shexp": "shared_mlp.input_linear",
    "ffn_up_shexp": "shared_mlp.input_linear",
    "ffn_down_shexp": "shared_mlp.output_linear",
}
GPT_OSS = {
    "post_attention_norm": "post_attention_layernorm",
    "attn_sinks": "self_attn.sinks",
    "ffn_gate_inp": "mlp.router",
    "ffn_gate_exps": "mlp.experts.gate_up_proj",
    "ffn_up_exps": "mlp.experts.gate_up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
}
NOMIC = {
    "token_embd": "embeddings.word_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "emb_ln",
    "attn_qkv": "attn.Wqkv",
    "attn_output": "attn.out_proj",
    "attn_output_norm": "norm1",
    "ffn_up": "mlp.fc11",
    "ffn_gate": "mlp.fc12",
    "ffn_down": "mlp.fc2",
    "layer_output_norm": "norm2",
}
LFM2 = {
    "attn_norm": "operator_norm",
    "ffn_norm": "ffn_norm",
    "attn_output": "self_attn.out_proj",
    "attn_q_norm": "self_attn.q_layernorm",
    "attn_k_norm": "self_attn.k_layernorm",
    "shortconv.conv": "conv.conv",
    "shortconv.in_proj": "conv.in_proj",
    "shortconv.out_proj": "conv.out_proj",
    "ffn_gate": "feed_forward.w1",
    "ffn_up": "feed_forward.w3",
    "ffn_down": "feed_forward.w2",
}
LFM2_MOE = LFM2 | {
    "ffn_gate_inp": "feed_forward.gate",
    "exp_probs_b": "feed_forward.expert_bias",
    "ffn_gate_exps": "w1",
    "ffn_up_exps": "w3",
    "ffn_down_exps": "w2",
}


def unpermuted(values: NDArray[np.float32], n_heads: int) -> NDArray[np.float32]:
    """Rows as transformers has them: the first half of each head, then the second."""
    head_dim = len(values) // n_heads
    order = np.concatenate([np.arange(0, head_dim, 2), np.arange(1, head_dim, 2)])
    return np.concatenate([values[head * head_dim : (head + 1) * head_dim][order] for head in range(n_heads)])


def put(
    tensors: dict[str, NDArray[np.float32]],
    layer: str,
    part: str,
    name: str,
    end: str,
    values: NDArray[np.float32],
    experts: str,
) -> None:
    """One tensor of a layer: as several where GGUF has all experts in one, with another where GGUF has them apart."""
    if name in ("feed_forward.expert_bias", "self_attn.sinks"):
        tensors[f"{layer}{name}"] = values
    elif "experts." in name:  # gpt-oss: gate and up in turns, and transposed
        put_in_turns(tensors, f"{layer}{name}", part, end, values)
    elif "input_linear" in name:  # gate and up in one
        half = tensors.pop(f"{layer}{name}.{end}", None)
        both = values if half is None else np.concatenate([half, values] if "up" in part else [values, half], axis=-2)
        tensors[f"{layer}{name}.{end}"] = both
    elif part.endswith("_exps") and "output_linear" not in name:
        for expert, each in enumerate(values):
            tensors[f"{layer}{experts}.{expert}.{name}.{end}"] = np.ascontiguousarray(each)
    else:
        tensors[f"{layer}{name}.{end}"] = values


def put_in_turns(
    tensors: dict[str, NDArray[np.float32]], name: str, part: str, end: str, values: NDArray[np.float32]
) -> None:
    """One tensor of gpt-oss's experts."""
    values = values if end == "bias" else values.swapaxes(1, 2)
    name = f"{name}_bias" if end == "bias" else name
    if "down" in part:
        tensors[name] = np.ascontiguousarray(values)
        return
    both = tensors.setdefault(name, np.empty((*values.shape[:-1], 2 * values.shape[-1]), np.float32))
    both[..., int("up" in part) :: 2] = values


def write_directory(
    folder: Path,
    source: Path,
    names: dict[str, str],
    config: dict[str, Any],
    *,
    permuted: bool = False,
    adds_one: bool = False,
    experts: str = "mlp.experts",
    prefix: str = LAYER,
    n_shards: int = 1,
) -> None:
    """Writes config.json, tokenizer.json and safetensors with the weights of an F32 GGUF file."""
    folder.mkdir(exist_ok=True)
    tensors: dict[str, NDArray[np.float32]] = {}
    for tensor in gguf.GGUFReader(source).tensors:
        values = np.array(tensor.data, dtype=np.float32)
        stem, _, end = tensor.name.rpartition(".")
        match = re.fullmatch(r"blk\.(\d+)\.(.+)", stem)
        if adds_one and stem.endswith("norm"):
            values = values - np.float32(1)
        if match is not None:
            layer, part = prefix.format(layer=match[1]), match[2]
            if permuted and part in ("attn_q", "attn_k"):
                values = unpermuted(values, config[HEADS[part]])
            if part == "shortconv.conv":
                values = values[:, None, :]
            put(tensors, layer, part, names[part], end, values, experts)
        elif stem.startswith("dense_"):
            put_dense(folder, int(stem.removeprefix("dense_")), values)
        elif not stem.startswith("rope_"):
            tensors[f"{names.get(stem, OUTER.get(stem))}.{end}"] = values
    shards = [dict(list(tensors.items())[index::n_shards]) for index in range(n_shards)]
    weight_map: dict[str, str] = {}
    for index, shard in enumerate(shards, 1):
        file = "model.safetensors" if n_shards == 1 else f"model-{index:05}-of-{n_shards:05}.safetensors"
        save_file(shard, folder / file)
        weight_map |= dict.fromkeys(shard, file)
    if n_shards > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()), encoding="utf-8")


def put_dense(folder: Path, index: int, matrix: NDArray[np.float32], activation: str = "Identity") -> None:
    """A matrix behind the pooling, as Sentence Transformers have it."""
    own = folder / f"{index}_Dense"
    own.mkdir()
    save_file({"linear.weight": np.ascontiguousarray(matrix)}, own / "model.safetensors")
    config = {"bias": False, "activation_function": f"torch.nn.modules.linear.{activation}"}
    (own / "config.json").write_text(json.dumps(config), encoding="utf-8")
    path = folder / "modules.json"
    modules = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    modules.append({"idx": index, "path": own.name, "type": "sentence_transformers.models.Dense"})
    path.write_text(json.dumps(modules), encoding="utf-8")


def tokenizer_json() -> dict[str, Any]:
    """A byte-level BPE of 256 bytes, one merge and two added tokens, cut as GPT-2's."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    vocab = {letters[byte]: byte for byte in range(256)} | {"th": 256}
    return {
        "model": {"type": "BPE", "vocab": vocab, "merges": [["t", "h"]]},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "added_tokens": [
            {"id": 257, "content": "<|end|>", "special": True},
            {"id": 258, "content": "<tool>", "special": False},
        ],
    }
