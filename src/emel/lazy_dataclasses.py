"""Dataclasses whose code is written when it is first needed.

`dataclasses.dataclass` compiles up to six methods of each class when its module is imported. More than a hundred
stand between the start of `emel` and its first token, and half of them are never made: that was a fifth of the
processor time of a short run. Here a class has its slots at once, `__init__` is compiled for its first object, and
comparing, hashing and printing are shared by all classes.

1. To a type checker it is `dataclasses.dataclass`, with the options frozen, kw_only and eq; slots are always there.
2. `field` is the standard library's, with default, default_factory, compare, repr and metadata.
3. Its `fields`, `replace` and `asdict` take these classes, which may inherit from one another.
4. What is made late changes nothing but where it is kept, so several threads may make it, and an interrupt end that.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import MISSING, Field, FrozenInstanceError
from inspect import get_annotations
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - what this module is there for

    _Fields = Mapping[str, "_Field"]


class _Field(NamedTuple):
    default: Any
    factory: Any
    is_keyword: bool
    compares: bool
    is_shown: bool


class _Made:
    """What a signature shows where a field's factory is called."""

    def __repr__(self) -> str:
        return "<factory>"


class _Deferred:
    """A class attribute that is made when somebody looks, and stands in the class from then on."""

    __slots__ = ("_make", "_name", "_owner")

    def __init__(self, owner: type, name: str, make: Callable[[], object]) -> None:
        self._owner, self._name, self._make = owner, name, make

    def __get__(self, instance: object, owner: type) -> Any:
        setattr(self._owner, self._name, self._make())
        return getattr(owner if instance is None else instance, self._name)


if not TYPE_CHECKING:

    def dataclass(*, slots: bool, frozen: bool = False, kw_only: bool = False, eq: bool = True):
        """The decorator; see the module."""
        if not slots:
            raise TypeError("a dataclass without slots is one of the standard library")

        def decorate(plain: type) -> type:
            return _slotted(plain, frozen=frozen, kw_only=kw_only, eq=eq)

        return decorate


def _slotted(plain: type, *, frozen: bool, kw_only: bool, eq: bool) -> type:
    """The class in place of `plain`, which stays as it was written for what is made of it later."""
    own = {
        name: _field_of(plain.__dict__.get(name, MISSING), kw_only=kw_only)
        for name, kind in get_annotations(plain).items()
        if not str(kind).startswith("ClassVar")
    }
    inherited: dict[str, _Field] = {}
    for base in plain.__mro__[-1:0:-1]:
        inherited.update(base.__dict__.get("__lazy_fields__", {}))
    fields = inherited | own
    written = {name: value for name, value in plain.__dict__.items() if name not in ("__dict__", "__weakref__")}
    namespace = {name: value for name, value in written.items() if name not in own} | {
        "__slots__": tuple(name for name in own if name not in inherited),
        "__lazy_fields__": fields,
        "__match_args__": tuple(name for name, each in fields.items() if not each.is_keyword),
        "__dataclass_params__": SimpleNamespace(
            init=True, repr=True, eq=eq, order=False, unsafe_hash=False, frozen=frozen
        ),
    }
    for name, method in _methods(frozen=frozen, eq=eq).items():
        if namespace.get(name) is None:  # a class with a comparison of its own has None for a hash
            namespace[name] = method
    cls = type(plain)(plain.__name__, plain.__bases__, namespace)
    cls.__qualname__ = plain.__qualname__

    def standard_fields() -> object:
        options = {"init": False, "repr": False, "eq": False, "frozen": frozen, "kw_only": kw_only}
        made: Any = dataclasses.dataclass(**options)(type(plain)(plain.__name__, plain.__bases__, written))
        return made.__dataclass_fields__

    for name, make in (
        ("__dataclass_fields__", standard_fields),
        ("__init__", lambda: _compiled_init(cls, fields, frozen=frozen)),
    ):
        setattr(cls, name, _Deferred(cls, name, make))
    return cls


def _methods(*, frozen: bool, eq: bool) -> dict[str, Any]:
    """What all classes of these options share."""
    methods: dict[str, Any] = {"__repr__": _repr}
    if eq:
        methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
    if frozen:
        methods |= {
            "__setattr__": _refuse_to_assign,
            "__delattr__": _refuse_to_delete,
            "__getstate__": _state,
            "__setstate__": _set_state,
        }
    return methods


def _field_of(default: Any, *, kw_only: bool) -> _Field:
    if not isinstance(default, Field):
        return _Field(default, MISSING, kw_only, compares=True, is_shown=True)
    is_keyword = kw_only if default.kw_only is MISSING else default.kw_only
    return _Field(default.default, default.default_factory, is_keyword, default.compare, default.repr)


def _compiled_init(cls: type, fields: _Fields, *, frozen: bool) -> object:
    """`__init__` as the standard library writes it; it sees its module's names, for who resolves its annotations."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_made": _Made()}
    arguments: dict[bool, list[str]] = {False: [], True: []}
    lines = []
    for name, each in fields.items():
        value, default = name, ""
        if each.factory is not MISSING:
            known[f"_make_{name}"] = each.factory
            value, default = f"_make_{name}() if {name} is _made else {name}", "=_made"
        elif each.default is not MISSING:
            known[f"_default_{name}"] = each.default
            default = f"=_default_{name}"
        arguments[each.is_keyword].append(f"{name}{default}")
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    star = ["*"] if arguments[True] else []
    signature = ", ".join(["self", *arguments[False], *star, *arguments[True]])
    body = "\n  ".join(lines or ["pass"])
    source = f"def make({', '.join(known)}):\n def __init__({signature}):\n  {body}\n return __init__"
    made: dict[str, Any] = {}
    exec(source, vars(sys.modules[cls.__module__]), made)  # noqa: S102 - of the class's own names alone
    init = made["make"](**known)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {
        name: kind for base in reversed(cls.__mro__) for name, kind in get_annotations(base).items() if name in fields
    } | {"return": None}
    return init


def _values(self: Any) -> tuple[object, ...]:
    """The fields that are compared."""
    return tuple(getattr(self, name) for name, each in type(self).__lazy_fields__.items() if each.compares)


def _eq(self: Any, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    shown = (name for name, each in type(self).__lazy_fields__.items() if each.is_shown)
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({fields})"


def _refuse_to_assign(_self: Any, name: str, _value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, name) for name in type(self).__lazy_fields__]


def _set_state(self: Any, state: list[object]) -> None:
    for name, value in zip(type(self).__lazy_fields__, state, strict=True):
        object.__setattr__(self, name, value)
