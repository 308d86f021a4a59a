"""What decides the bits of an answer, in a few characters: the numerics version, and which model it is."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from emel.kernel.numerics import Activations, numerics_version

if TYPE_CHECKING:
    from emel.gguf import GgufFile


def fingerprint_of(file: GgufFile, activations: Activations, adapters: str = "") -> str:
    """`emel-1-0123456789ab`: of the file's short metadata, its size and its list of tensors; no weight is read.

    With int8 activations it begins with `emel-1-int8-`. `adapters`: a digest of what was merged into the weights.

    Two files that tell the same of themselves have the same fingerprint: it names a model, it does not vouch for it.
    """
    digest = blake2b(digest_size=6)
    for key, value in file.metadata.items():
        if isinstance(value, str | int | float | bool):
            digest.update(f"{key}={value!r}\n".encode())
    for name, tensor in file.tensors.items():
        digest.update(f"{name} {tensor.type.name} {tensor.rows} {tensor.cols}\n".encode())
    digest.update(adapters.encode())
    return f"emel-{numerics_version(activations)}-{digest.hexdigest()}"
