"""Schemas that nothing obeys because each value would have to hold another one, without end.

A compiler of grammars takes them, and an answer would go on until something breaks. Found as the productive symbols of
a grammar are: a schema has a value if what it cannot do without has one. What is not looked at (`not`, patterns,
references elsewhere, what the rounds do not reach) counts as if it had one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

# Each round looks at every schema once more: what clients send must not cost the square of its length.
_MOST_ROUNDS = 200
_MOST_LOOKS = 200_000
_INDEX = re.compile("0|[1-9][0-9]{0,8}")  # RFC 6901, section 4
_CONTAINERS = frozenset({"object", "array"})


def is_endless(schema: Any) -> bool:
    """Whether no value obeys a JSON schema for that reason."""
    nodes = _reachable(schema)
    found: set[int] = set()
    for _ in range(min(_MOST_ROUNDS, _MOST_LOOKS // max(1, len(nodes)))):
        new = {key for key, (node, root) in nodes.items() if key not in found and _has_value(node, root, found)}
        if not new:
            return isinstance(schema, dict) and id(schema) not in found
        found |= new
    return False


def _reachable(schema: Any) -> dict[int, tuple[dict[str, Any], dict[str, Any]]]:
    """All schemas that are parts of one, each with the one its references begin at."""
    nodes: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
    waiting = [(schema, schema)]
    while waiting:
        node, root = waiting.pop()
        if not isinstance(node, dict) or id(node) in nodes:
            continue
        if isinstance(node.get("$id"), str):
            root = node
        nodes[id(node)] = node, root
        parts = [_target(node, root), *_needed_of_object(node), *_needed_of_array(node)]
        for name in ("allOf", "anyOf", "oneOf"):
            parts += _listed(node, name)
        waiting += [(each, root) for each in parts]
    return nodes


def _has_value(node: dict[str, Any], root: dict[str, Any], found: set[int]) -> bool:
    def is_found(part: Any) -> bool:
        return id(part) in found if isinstance(part, dict) else part is not False

    if "const" in node or "enum" in node:
        return True
    if not is_found(_target(node, root)) or not all(map(is_found, _listed(node, "allOf"))):
        return False
    if any(parts and not any(map(is_found, parts)) for parts in (_listed(node, "anyOf"), _listed(node, "oneOf"))):
        return False
    kinds = node.get("type")
    kinds = {kinds} if isinstance(kinds, str) else set(map(str, kinds)) if isinstance(kinds, list) else set()
    if not kinds or not kinds <= _CONTAINERS:
        return True
    return ("object" in kinds and all(map(is_found, _needed_of_object(node)))) or (
        "array" in kinds and all(map(is_found, _needed_of_array(node)))
    )


def _needed_of_object(node: dict[str, Any]) -> Iterator[Any]:
    """The schemas of properties that must be there."""
    properties, required = node.get("properties"), node.get("required")
    if isinstance(properties, dict) and isinstance(required, list):
        yield from (properties[name] for name in required if isinstance(name, str) and name in properties)


def _needed_of_array(node: dict[str, Any]) -> Iterator[Any]:
    """The schemas of items that must be there."""
    n_least = node.get("minItems")
    if not isinstance(n_least, int) or n_least < 1:
        return
    firsts = _listed(node, "prefixItems")
    yield from firsts[:n_least]
    if n_least > len(firsts):
        yield node.get("items")


def _listed(node: dict[str, Any], name: str) -> list[Any]:
    found = node.get(name)
    return found if isinstance(found, list) else []


def _target(node: dict[str, Any], root: Any) -> Any:
    """What a schema refers to within the document; None when it refers to nothing, or elsewhere."""
    reference = node.get("$ref")
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    found = root
    for part in reference.split("/")[1:]:
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and _INDEX.fullmatch(name) and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            return None
    return found
