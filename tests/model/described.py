"""A tiny model written, and described as the loader does before it reads any weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emel.gguf import open_gguf
from emel.model.loader import describe_file
from model.every_model import EVERY_MODEL
from model.tiny_models import write_tiny_model

if TYPE_CHECKING:
    from pathlib import Path

    from emel.graph.ops import Graph
    from emel.model.loader import ModelDescription


def describe_tiny(path: Path, name: str) -> tuple[Graph, ModelDescription]:
    """The graph and the description of the model of that name, its matrices of Q8_0."""
    write_tiny_model(path, EVERY_MODEL[name](), "Q8_0")
    with open_gguf(path) as file:
        description = describe_file(file)
        return description.architecture.build(description.parameters, description.tensors), description
