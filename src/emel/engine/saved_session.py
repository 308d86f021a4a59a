"""Sessions in files: what was computed of a prompt, to be found again by a later process (emel.memory.saved).

    save_session(session, path, token_ids)     # computes what is missing, writes all of it
    token_ids = load_session(session, path)    # from now on, prompts that begin with these tokens find them computed

A loaded session takes no lane: its full blocks are stored as prefixes, as those of a request that is over.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from emel.engine.exclusive import LoneSequence
from emel.engine.failures import request_failures
from emel.engine.fingerprint import fingerprint_of_session
from emel.errors import RequestError
from emel.graph.batch import Outputs
from emel.kernel.numerics import numerics_version
from emel.kernel.sizes import KV_BLOCK
from emel.memory.hybrid import HybridCache
from emel.memory.saved import HASH_BYTES, Origin, restore_sequence, save_sequence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emel.engine.session import Session
    from emel.memory.kv import KvCache

_SAMPLE = 4096
"""Bytes that are looked at in the beginning, the middle and the end of each tensor."""


def save_session(session: Session, path: str | os.PathLike[str], token_ids: list[int]) -> None:
    """Writes keys and values of these tokens to a file, in place of what was there; the wave waits meanwhile.

    What is not in the memory yet is computed. RequestError, and no file is touched, when that or the writing fails.
    """
    memory = _memory_of(session)

    def save() -> None:
        origin = _origin(session)  # on the compute thread, as the file is for one at a time
        with LoneSequence(session, token_ids) as lone:
            for begin in range(lone.n_found, len(token_ids), session.chunk):
                lone.compute(token_ids[begin : begin + session.chunk], Outputs.NONE)
            save_sequence(memory, lone.sequence, token_ids, path, origin)

    with _file_failures("save a session to", path):
        session.between_steps(save, len(token_ids))


def load_session(session: Session, path: str | os.PathLike[str]) -> list[int]:
    """Has later prompts find what a file holds; its token ids.

    RequestError, and nothing changes, for a file that is damaged, or of another model, numerics version or kv_type.
    """
    memory = _memory_of(session)

    def load() -> list[int]:
        sequence, token_ids = restore_sequence(memory, path, _origin(session))
        try:
            memory.publish(sequence, token_ids)
            if isinstance(memory, HybridCache) and not len(token_ids) % KV_BLOCK:
                # The same prompt again is found up to the border before its end.
                memory.rollback(sequence, 1)
                if memory.can_checkpoint(sequence):
                    memory.checkpoint(sequence)
        finally:
            memory.close_sequence(sequence)
        return token_ids

    with _file_failures("load a session from", path):
        kv = memory.kv if isinstance(memory, HybridCache) else memory
        n_tokens = -(-Path(path).stat().st_size // kv.geometry.bytes_per_block) * KV_BLOCK
        return session.between_steps(load, min(n_tokens, session.n_ctx))


def _origin(session: Session) -> Origin:
    """What computes sessions with a model: its fingerprint, and three samples of each tensor.

    So a model with other weights is another one even if it tells the same of itself, and no gigabytes are read. The
    type of keys and values is told by the file itself.
    """
    file = session.model.description.file
    digest = blake2b(fingerprint_of_session(session, has_kv_type=False).encode(), digest_size=HASH_BYTES)
    for name in sorted(file.tensors):
        data = file.tensor_data(name)
        for begin in (0, len(data) // 2, max(len(data) - _SAMPLE, 0)):
            digest.update(data[begin : begin + _SAMPLE])
    return Origin(digest.digest(), int(numerics_version()))


def _memory_of(session: Session) -> KvCache | HybridCache:
    session.check_open()
    session.check_generates()
    return session.memory


@contextmanager
def _file_failures(what: str, path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        with request_failures():
            yield
    except OSError as error:
        raise RequestError(f"cannot {what} {os.fspath(path)}: {error.strerror or error}") from error
