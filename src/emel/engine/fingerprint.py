"""What decides the bits of an answer, in a few characters: the numerics version, the session, and which model it is.

emel-1-0123456789ab             as a model is loaded without options
emel-1-int8-q8_0-0123456789ab   int8 activations; keys and values kept as q8_0
emel-1-long-0123456789ab        a context that takes the long factors of RoPE, of a model that has two sets
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from emel.kernel.numerics import Activations, numerics_version
from emel.kernel.sizes import KV_TYPES
from emel.model.rope import takes_long_factors

if TYPE_CHECKING:
    from emel.engine.session import Session
    from emel.gguf import GgufFile
    from emel.tensor.types import TensorType


def fingerprint_of(
    file: GgufFile,
    activations: Activations,
    adapters: str = "",
    *,
    kv_type: TensorType = KV_TYPES[0],
    is_long: bool = False,
) -> str:
    """See the file's header: of the file's short metadata, its size and its list of tensors; no weight is read.

    `adapters`: a digest of what was merged into the weights. Metadata that was overridden counts as it was given.

    Two files that tell the same of themselves have the same fingerprint: it names a model, it does not vouch for it.
    """
    digest = blake2b(digest_size=6)
    for key, value in file.metadata.items():
        if isinstance(value, str | int | float | bool):
            digest.update(f"{key}={value!r}\n".encode())
    for name, tensor in file.tensors.items():
        digest.update(f"{name} {tensor.type.name} {tensor.rows} {tensor.cols}\n".encode())
    digest.update(adapters.encode())
    kind = "" if kv_type is KV_TYPES[0] else f"-{kv_type.name.lower()}"
    return f"emel-{numerics_version(activations)}{kind}{'-long' if is_long else ''}-{digest.hexdigest()}"


def fingerprint_of_session(session: Session, *, has_kv_type: bool = True) -> str:
    """That of what a session computes; without the type of its keys and values for what tells that by itself."""
    description = session.model.description
    kv_type = session.batch.kv.kv_type if has_kv_type else KV_TYPES[0]
    rope = getattr(description.parameters, "rope", None)  # some encoders have none
    is_long = takes_long_factors(rope, description.file, session.n_ctx_asked)
    return fingerprint_of(description.file, session.activations, description.adapters, kv_type=kv_type, is_long=is_long)
