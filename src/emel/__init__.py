"""EMEL runs GGUF language models on CPUs.

    import emel

    with emel.load("smollm2-135m-instruct") as model:
        print(model.chat([{"role": "user", "content": "What is the capital of France?"}]).text)

Names are imported when first used, so that `import emel` costs nothing.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # typing takes longer to import than the rest of what comes first
if TYPE_CHECKING:
    from emel.engine.loading import load
    from emel.engine.model import Model
    from emel.engine.results import Chunk, Completion, Timings
    from emel.engine.stream import Stream
    from emel.errors import (
        EmelError,
        ModelClosedError,
        ModelFetchError,
        ModelLoadError,
        ModelNotFoundError,
        ModelReadError,
        PromptsFailedError,
        RequestError,
    )

__version__ = "0.1.0"

__all__ = [
    "Chunk",
    "Completion",
    "EmelError",
    "Model",
    "ModelClosedError",
    "ModelFetchError",
    "ModelLoadError",
    "ModelNotFoundError",
    "ModelReadError",
    "PromptsFailedError",
    "RequestError",
    "Stream",
    "Timings",
    "__version__",
    "load",
]

_HOMES = {
    "Chunk": "emel.engine.results",
    "Completion": "emel.engine.results",
    "EmelError": "emel.errors",
    "Model": "emel.engine.model",
    "ModelClosedError": "emel.errors",
    "ModelFetchError": "emel.errors",
    "ModelLoadError": "emel.errors",
    "ModelNotFoundError": "emel.errors",
    "ModelReadError": "emel.errors",
    "PromptsFailedError": "emel.errors",
    "RequestError": "emel.errors",
    "Stream": "emel.engine.stream",
    "Timings": "emel.engine.results",
    "load": "emel.engine.loading",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'emel' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
