"""The tensors of a Hugging Face model under GGUF's names and in GGUF's order of rows.

Names come from the gguf package (`get_tensor_name_map`), but those of experts: Hugging Face has one tensor for each (or
gate and up in one), GGUF one for all. Each tensor is made of pieces, so that no more than one is in memory at a time.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from emel.convert.errors import ConvertError
from emel.convert.hf_encoders import LEFT_OUT as ENCODERS_LEAVE_OUT
from emel.convert.hf_families import experts_of, kv_heads_of
from emel.convert.hf_gpt_oss import EXPERT as OSS_EXPERT
from emel.convert.hf_gpt_oss import expert_tensors as oss_expert_tensors
from emel.convert.hf_rope import rope_factors
from emel.convert.out_tensors import OutTensor, changed
from emel.convert.writing import load_gguf

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.convert.hf_families import Config, Family
    from emel.convert.hf_files import HfTensor
    from emel.convert.out_tensors import Floats, Load

_EXPERT = re.compile(r"model\.layers\.(\d+)\.\w+\.experts\.(\d+)\.(w1|w2|w3|gate_proj|up_proj|down_proj)\.weight")
_EXPERT_NAMES = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
_JOINED = re.compile(r"model\.layers\.(\d+)\.(block_sparse_moe|shared_mlp)\.input_linear\.weight")
_ENDS = {"exp_probs_b": ".bias", "attn_sinks": ".weight"}  # of what has none in Hugging Face's names
_MAX_LAYERS = 4096  # of each of which the names of all tensors are made
_LEFT_OUT = ("rotary_emb.inv_freq", "self_attn.masked_bias", *ENCODERS_LEAVE_OUT)


def out_tensors(tensors: Mapping[str, HfTensor], config: Config, family: Family) -> list[OutTensor]:
    """Every tensor of the new file; ConvertError naming those that are not known."""
    n_layers = config["num_hidden_layers"]
    if not isinstance(n_layers, int) or not 1 <= n_layers <= _MAX_LAYERS:
        raise ConvertError(f"config.json has num_hidden_layers {n_layers!r}: 1 to {_MAX_LAYERS} are allowed")
    gguf = load_gguf()
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[family.package_name], n_layers)
    found: dict[str, OutTensor] = {}
    experts: dict[str, dict[int, HfTensor]] = {}
    for name, tensor in tensors.items():
        if name.endswith(_LEFT_OUT) or (name == "lm_head.weight" and config.get("tie_word_embeddings")):
            continue
        if match := _EXPERT.fullmatch(name):
            layer, expert, part = match.groups()
            experts.setdefault(f"blk.{layer}.ffn_{_EXPERT_NAMES[part]}_exps.weight", {})[int(expert)] = tensor
        elif match := _JOINED.fullmatch(name):
            found |= _halves(tensor, f"blk.{match[1]}.", "exps" if match[2] == "block_sparse_moe" else "shexp")
        elif match := OSS_EXPERT.fullmatch(name):
            found |= {out.name: out for out in oss_expert_tensors(match, tensors)}
        else:
            plain = family.adds_prefix + name.removeprefix("bert.")
            known = names.get_name(plain, try_suffixes=(".weight", ".bias", ""))
            if known is None:
                raise ConvertError(f"tensor {name!r} is not known in a model of class {config['architectures'][0]!r}")
            out = _plain(tensor, known + _ENDS.get(known.rpartition(".")[2], ""), config, family)
            found[out.name] = out
    for name, parts in experts.items():
        found[name] = _stacked(name, parts, experts_of(config))
    for name, values in rope_factors(config).items():
        found[name] = OutTensor(name, values.shape, (partial(_same, values),))
    return list(found.values())


def permuted(values: Floats, n_heads: int) -> Floats:
    """Rows (n_heads * head_dim, ...) of which RoPE pairs the halves of a head, so that it pairs adjacent ones."""
    halves = values.reshape(n_heads, 2, values.shape[0] // n_heads // 2, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)


def _plain(tensor: HfTensor, name: str, config: Config, family: Family) -> OutTensor:
    """One tensor for one, its rows in another order or its values changed where the family has it."""
    load: Load = tensor.load
    shape = tensor.shape
    if family.permutes and (".attn_q." in name or ".attn_k." in name):
        n_heads = config["num_attention_heads"] if ".attn_q." in name else kv_heads_of(config)
        load = partial(changed, load, partial(permuted, n_heads=n_heads))
    elif family.adds_one and name.endswith("norm.weight"):
        load = partial(changed, load, _plus_one)
    elif name.endswith("shortconv.conv.weight"):
        shape = (shape[0], shape[-1])  # one channel in each group
        load = partial(changed, load, partial(_reshaped, shape=shape))
    return OutTensor(name, shape, (load,))


def _halves(tensor: HfTensor, block: str, kind: str) -> dict[str, OutTensor]:
    """Gate and up, whose rows lie one behind the other, for each expert where there are several."""
    *experts, rows, cols = tensor.shape
    shape = (*experts, rows // 2, cols)
    out = {}
    for part, begin in (("gate", 0), ("up", rows // 2)):
        name = f"{block}ffn_{part}_{kind}.weight"
        rows_of = partial(_rows, begin=begin, end=begin + rows // 2)
        out[name] = OutTensor(name, shape, (partial(changed, tensor.load, rows_of),))
    return out


def _stacked(name: str, parts: Mapping[int, HfTensor], n_experts: int) -> OutTensor:
    """All experts of a layer, one piece each."""
    if sorted(parts) != list(range(n_experts)):
        raise ConvertError(f"tensor {name!r} needs experts 0 to {n_experts - 1}: there are {len(parts)}")
    shapes = {each.shape for each in parts.values()}
    if len(shapes) > 1:
        raise ConvertError(f"tensor {name!r} has experts of different shapes: {sorted(shapes)}")
    return OutTensor(name, (n_experts, *shapes.pop()), tuple(parts[expert].load for expert in range(n_experts)))


def _plus_one(values: Floats) -> Floats:
    return values + np.float32(1)


def _rows(values: Floats, begin: int, end: int) -> Floats:
    return values[..., begin:end, :]


def _reshaped(values: Floats, shape: tuple[int, ...]) -> Floats:
    return values.reshape(shape)  # `np.reshape` has `shape` by name since NumPy 2.1 only


def _same(values: Floats) -> Floats:
    return values
