"""Amounts of bytes as people write them.

2GiB, 500MB, 1500000000     so many bytes
50%                         a share of what this process may still take, its control groups considered
"""

from __future__ import annotations

import re

from emel.engine.arguments import checked_whole
from emel.errors import RequestError
from emel.text.errors import shown

_UNITS = {"": 1, "b": 1} | {
    name: factor
    for power, letter in enumerate("kmgt", 1)
    for name, factor in ((letter, 1 << 10 * power), (f"{letter}b", 1000**power), (f"{letter}ib", 1 << 10 * power))
}
_AMOUNT = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*([a-z]*|%)")
_HELP = "give bytes, an amount such as 2GiB or 500MB, or a share of the available memory such as 50%"
_LEAST_PLAIN = 1 << 20
"""Bytes below which a number without a unit is rather one whose unit was forgotten."""


def parse_bytes(text: str) -> int | None:
    """The bytes of an amount, 0 for less than one; None for what is none, and for a share."""
    match = _AMOUNT.fullmatch(text.strip().lower())
    return None if match is None or match[2] not in _UNITS else int(float(match[1]) * _UNITS[match[2]])


def parse_memory(value: object) -> int:
    """Bytes of a budget; RequestError for what is none."""
    if not isinstance(value, str):
        n_bytes = checked_whole(value, "memory")
        if n_bytes < 1:
            raise RequestError(f"memory is {n_bytes}: it must be at least 1 byte", hint=_HELP)
        return n_bytes
    match = _AMOUNT.fullmatch(value.strip().lower())
    if match is not None and match[2] == "%":
        return _share(value, float(match[1]))
    n_bytes_of_text = parse_bytes(value)
    if match is None or n_bytes_of_text is None:
        raise RequestError(f"memory is {shown(value)}", hint=_HELP)
    if n_bytes_of_text < 1:
        raise RequestError(f"memory is {value!r}: it must be at least 1 byte", hint=_HELP)
    if not match[2] and n_bytes_of_text < _LEAST_PLAIN:
        raise RequestError(
            f"memory is {value!r}, which are bytes and hold no model: say the unit",
            hint=f"{match[1]}GiB or {match[1]}MiB, if that is what was meant; or {_HELP}",
        )
    return n_bytes_of_text


def _share(text: str, percent: float) -> int:
    if not 0 < percent <= 100:
        raise RequestError(f"memory is {text!r}: a share must be above 0% and at most 100%", hint=_HELP)
    from emel.engine.memory import machine_bytes
    from emel.kernel.host_memory import read_host_memory

    available = read_host_memory().available
    return int((available if available is not None else machine_bytes()) * percent / 100)
