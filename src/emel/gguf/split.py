"""Split models: one model in several files, `NAME-00001-of-00003.gguf` and so on, each a sound GGUF of its own.

    split.no             this file's place, from 0
    split.count          how many files there are
    split.tensors.count  tensors in all of them together

The first file has the model's metadata; the others are found beside it.
https://github.com/ggml-org/llama.cpp/blob/master/tools/gguf-split/README.md
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from emel.gguf.errors import GgufError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emel.gguf.entries import Entry
    from emel.gguf.tensors import TensorInfo

COUNT_KEY, PLACE_KEY, TENSORS_KEY = "split.count", "split.no", "split.tensors.count"
MAX_PARTS = 1024
_MOST_NAMED = 3
_NAME = re.compile(r"(?P<stem>.*)-(?P<place>\d{5})-of-(?P<count>\d{5})\.gguf")


def part_paths(path: str, entries: Mapping[str, Entry]) -> list[str]:
    """The paths of all parts, given the first one and its metadata; one path for a model that is not split.

    GgufError when `path` is another part, is not named as parts are, or parts are missing beside it.
    """
    n_parts = _number(entries, COUNT_KEY, 1)
    if n_parts <= 1:
        return [path]
    if n_parts > MAX_PARTS:
        raise GgufError(
            f"{path!r} claims to be one of {n_parts} parts ({COUNT_KEY!r}): at most {MAX_PARTS} are allowed"
        )
    place, name = _number(entries, PLACE_KEY, 0), Path(path).name
    named = _NAME.fullmatch(name)
    if named is None or int(named["count"]) != n_parts or int(named["place"]) != place + 1:
        expected = f"-{place + 1:05}-of-{n_parts:05}.gguf"
        raise GgufError(
            f"{path!r} is part {place + 1} of {n_parts} of a split model, but its name does not end in {expected!r}, "
            "by which the others would be found: give the parts their own names back"
        )
    paths = [str(Path(path).with_name(part_name(named["stem"], index, n_parts))) for index in range(n_parts)]
    if place != 0:
        raise GgufError(f"{path!r} is part {place + 1} of {n_parts} of a split model: open the first, {paths[0]!r}")
    _check_present(paths)
    return paths


def part_name(stem: str, index: int, n_parts: int) -> str:
    """The file name of part `index`, counted from 0."""
    return f"{stem}-{index + 1:05}-of-{n_parts:05}.gguf"


def check_part(path: str, entries: Mapping[str, Entry], index: int, n_parts: int) -> None:
    """GgufError unless the file at `path` says it is part `index` of `n_parts`."""
    found = (_number(entries, PLACE_KEY, 0), _number(entries, COUNT_KEY, 1))
    if found != (index, n_parts):
        raise GgufError(
            f"{path!r} says it is part {found[0] + 1} of {found[1]}, its name says part {index + 1} of {n_parts}: "
            "the parts are of different models or were renamed, fetch them again"
        )


def join_tensors(
    paths: Sequence[str], parts: Sequence[Mapping[str, TensorInfo]], entries: Mapping[str, Entry]
) -> dict[str, TensorInfo]:
    """The tensors of all parts, each knowing its part; GgufError for a name in two of them or a wrong total."""
    joined: dict[str, TensorInfo] = {}
    for index, tensors in enumerate(parts):
        for name, info in tensors.items():
            if name in joined:
                raise GgufError(f"tensor {name!r} is in {paths[joined[name].part]!r} and in {paths[index]!r}")
            joined[name] = replace(info, part=index) if index else info
    total = _number(entries, TENSORS_KEY, len(joined))
    if total != len(joined):
        raise GgufError(
            f"the {len(paths)} parts beside {paths[0]!r} have {len(joined)} tensors, {TENSORS_KEY!r} says {total}: "
            "fetch them again"
        )
    return joined


def _check_present(paths: Sequence[str]) -> None:
    missing = [Path(path).name for path in paths if not Path(path).exists()]
    if missing:
        shown = ", ".join(map(repr, missing[:_MOST_NAMED]))
        more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
        raise GgufError(
            f"{len(missing)} of the model's {len(paths)} parts are missing beside {paths[0]!r}: fetch {shown}{more}"
        )


def _number(entries: Mapping[str, Entry], key: str, default: int) -> int:
    entry = entries.get(key)
    if entry is None:
        return default
    if isinstance(entry.value, bool) or not isinstance(entry.value, int) or entry.value < 0:
        raise GgufError(f"metadata {key!r} is {entry.value!r} ({entry.type_name}): a count is wanted")
    return entry.value
