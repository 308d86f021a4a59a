"""Architectures by the name GGUF gives them; a module is imported when its name is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from emel.model.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emel.gguf import GgufFile, Metadata, TensorInfo
    from emel.graph.ops import Graph, Heads
    from emel.graph.state_ops import StateGeometry
    from emel.kernel.packing import Vector
    from emel.model.pooling import Pooling
    from emel.model.tensors import ExpectedTensor

_MODULES = {
    "bert": "emel.model.bert",
    "gemma-embedding": "emel.model.gemma_embedding",
    "gemma2": "emel.model.gemma2",
    "gemma3": "emel.model.gemma3",
    "gpt-oss": "emel.model.gpt_oss",
    "granite": "emel.model.granite",
    "granitemoe": "emel.model.granitemoe",
    "lfm2": "emel.model.lfm2",
    "lfm2moe": "emel.model.lfm2moe",
    "llama": "emel.model.llama",
    "nomic-bert": "emel.model.nomic_bert",
    "olmo2": "emel.model.olmo2",
    "olmoe": "emel.model.olmoe",
    "phi3": "emel.model.phi3",
    "qwen2": "emel.model.qwen2",
    "qwen2moe": "emel.model.qwen2moe",
    "qwen3": "emel.model.qwen3",
    "qwen3moe": "emel.model.qwen3moe",
    "smollm3": "emel.model.smollm3",
}
KNOWN = tuple(sorted(_MODULES))


class Parameters(Protocol):
    """What every architecture's hyperparameters tell."""

    @property
    def n_layers(self) -> int:
        """Blocks of the model."""

    @property
    def n_kv_layers(self) -> int:
        """Layers that keep keys and values."""

    @property
    def state(self) -> StateGeometry | None:
        """A sequence's recurrent state, a slot of emel.memory.recurrent; None: there is none."""

    @property
    def embedding_width(self) -> int:
        """Values of a text's embedding, for an encoder; 0: the model has logits."""

    @property
    def pooling(self) -> Pooling | None:
        """The file's way to one embedding of a text; None: it says nothing."""

    @property
    def d_model(self) -> int:
        """Width of the residual stream."""

    @property
    def n_vocab(self) -> int:
        """Tokens of the vocabulary."""

    @property
    def n_ctx(self) -> int:
        """The longest context the model was trained for."""

    @property
    def heads(self) -> Heads:
        """Attention geometry."""


class Architecture(Protocol):
    """What an architecture module offers."""

    def read_parameters(self, metadata: Metadata, tensors: Mapping[str, TensorInfo], /) -> Parameters:
        """The hyperparameters of a file."""

    def expected_tensors(self, parameters: Any, /) -> list[ExpectedTensor]:
        """Every tensor a file may have."""

    def derived_vectors(self, parameters: Any, file: GgufFile, n_ctx: int, /) -> list[Vector]:
        """Weights that are computed at load, for `n_ctx` tokens of context."""

    def build(self, parameters: Any, tensors: Mapping[str, TensorInfo], /) -> Graph:
        """The graph."""


def find_architecture(name: str) -> Architecture:
    """The module of an architecture; ModelError naming the known ones for another name."""
    module = _MODULES.get(name)
    if module is None:
        raise ModelError(f"architecture {name!r} is unknown to EMEL; known are {', '.join(KNOWN)}")
    return cast("Architecture", import_module(module))


def seen_tensors(
    architecture: Architecture, parameters: Parameters, tensors: Mapping[str, TensorInfo]
) -> Mapping[str, TensorInfo]:
    """A file's tensors as its architecture sees them: by its function `split_tensors` where it has one."""
    split = getattr(architecture, "split_tensors", None)
    return tensors if split is None else cast("Mapping[str, TensorInfo]", split(parameters, tensors))
