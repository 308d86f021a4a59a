"""Lazy dataclasses against the standard library's: the same classes, made both ways, behave the same."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from emel import lazy_dataclasses
from emel.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Point:
    """Where."""

    KIND: ClassVar[str] = "point"

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list, compare=False)

    @property
    def total(self) -> int:
        return self.x + self.y


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(Point):
    name: str
    weight: float = 0.5


@dataclass(slots=True)
class Mutable:
    values: dict[str, int] = field(default_factory=dict)
    n: int = 0

    def __post_init__(self) -> None:
        self.n += 1


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    id: int


def twins(define: Callable[[Callable[..., Any]], type]) -> tuple[Any, Any]:
    """A class made by this decorator and by the standard one."""
    return define(lazy_dataclasses.dataclass), define(dataclasses.dataclass)


def define_pair(decorator: Callable[..., Any]) -> type:
    @decorator(frozen=True, slots=True)
    class Pair:
        first: int
        second: str = "b"
        third: list[int] = field(default_factory=list)

    return Pair


def define_reticent(decorator: Callable[..., Any]) -> type:
    @decorator(frozen=True, slots=True)
    class Reticent:
        seen: int
        hidden: int = field(repr=False)
        late: int = field(default=3, repr=False)

    return Reticent


def test_what_is_not_to_be_shown_is_not() -> None:
    lazy, standard = twins(define_reticent)
    assert repr(lazy(1, 2)) == repr(standard(1, 2))
    assert repr(lazy(1, 2)).endswith("Reticent(seen=1)")
    assert lazy(1, 2) != lazy(1, 4)


def test_classes_are_made_shown_and_compared_as_the_standard_ones() -> None:
    lazy, standard = twins(define_pair)
    for arguments, options in (((1,), {}), ((1, "c", [3]), {}), ((), {"first": 1, "second": "d"})):
        one, other = lazy(*arguments, **options), standard(*arguments, **options)
        assert repr(one) == repr(other)
        assert one == lazy(*arguments, **options)
        assert one != other
        assert asdict(one) == asdict(other)
        assert asdict(replace(one, first=7)) == asdict(replace(other, first=7))
    assert str(inspect.signature(lazy)) == str(inspect.signature(standard))
    assert [each.name for each in fields(lazy)] == [each.name for each in fields(standard)]
    assert lazy.__slots__ == standard.__slots__
    assert lazy.__match_args__ == standard.__match_args__
    assert hash(lazy(1, "b", ())) == hash(standard(1, "b", ()))
    wrong_calls: list[tuple[tuple[int, ...], dict[str, int]]] = [((), {}), ((1,), {"fourth": 2}), ((1, 2, 3, 4), {})]
    for values, named in wrong_calls:
        messages = []
        for cls in (lazy, standard):
            with pytest.raises(TypeError) as caught:
                cls(*values, **named)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]


def test_frozen_objects_cannot_be_changed() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert not hasattr(point, "__dict__")
    assert point == Point(1)


def test_fields_of_a_base_come_first_and_keywords_last() -> None:
    named = Named(1, name="n")
    assert (named.x, named.y, named.name, named.weight, named.total) == (1, 2, "n", 0.5, 3)
    assert [each.name for each in fields(Named)] == ["x", "y", "tags", "name", "weight"]
    assert Named.__slots__ == ("name", "weight")
    assert Named.__match_args__ == ("x", "y", "tags")
    assert Named.KIND == "point"
    assert str(inspect.signature(Named)) == (
        "(x: 'int', y: 'int' = 2, tags: 'list[str]' = <factory>, *, name: 'str', weight: 'float' = 0.5) -> None"
    )
    with pytest.raises(TypeError, match="positional"):
        Named(1, 2, [], "n")  # type: ignore[call-arg]


def test_what_does_not_compare_is_left_out_of_equality_and_hash() -> None:
    assert Point(1, 2, ["a"]) == Point(1, 2, ["b"])
    assert hash(Point(1, 2, ["a"])) == hash(Point(1, 2, []))
    assert Point(1) != Named(1, name="n")
    assert Token(1) != Token(1)


def test_mutable_objects_have_no_hash_and_are_finished_by_their_class() -> None:
    one, other = Mutable(), Mutable()
    assert one == other
    assert one.n == 1
    one.values["a"] = 1
    assert other.values == {}
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_objects_are_copied_and_pickled() -> None:
    point = Point(1, 2, ["a"])
    for other in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert asdict(other) == asdict(point)


def test_a_class_keeps_methods_of_its_own() -> None:
    @dataclass(frozen=True, slots=True)
    class Odd:
        n: int

        def __repr__(self) -> str:
            return "odd"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Odd) and (self.n - other.n) % 2 == 0

        def __hash__(self) -> int:
            return self.n % 2

    assert repr(Odd(1)) == "odd"
    assert Odd(1) == Odd(3)
    assert hash(Odd(3)) == 1


def test_code_is_written_for_the_first_object() -> None:
    @dataclass(frozen=True, slots=True)
    class Fresh:
        n: int

    assert type(vars(Fresh)["__init__"]).__name__ == "_Deferred"
    assert Fresh(1).n == 1
    assert inspect.isfunction(vars(Fresh)["__init__"])


def test_slots_are_not_a_choice() -> None:
    with pytest.raises(TypeError, match="without slots is one of the standard library"):
        lazy_dataclasses.dataclass(frozen=True, slots=False)


def test_importing_what_answers_a_prompt_compiles_few_methods() -> None:
    program = """
import dataclasses, json
made, process = [], dataclasses._process_class
def counted(cls, *arguments):
    made.append(f"{cls.__module__}.{cls.__qualname__}")
    return process(cls, *arguments)
dataclasses._process_class = counted
import emel.engine.model, emel.model.loader, emel.model.llama
print(json.dumps([name for name in made if name.startswith("emel.")]))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert len(json.loads(run.stdout)) <= 8


def test_threads_may_use_a_class_for_the_first_time_together() -> None:
    n_threads, interval = 4, sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):
            (made, _), together = twins(define_pair), threading.Barrier(n_threads)

            def use(made: Any = made, together: threading.Barrier = together) -> list[str]:
                together.wait(10)
                assert replace(made(1), second="c") == made(1, "c")
                return [each.name for each in fields(made)]

            with ThreadPoolExecutor(n_threads) as threads:
                found = [threads.submit(use) for _ in range(n_threads)]
            assert [each.result() for each in found] == [["first", "second", "third"]] * n_threads
    finally:
        sys.setswitchinterval(interval)


def test_an_interrupt_leaves_no_class_half_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = twins(define_pair)

    def interrupted(cls: Any, *_options: object) -> Any:
        cls.__setattr__ = cls.__init__  # the last but one thing that is done to a class
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(dataclasses, "_process_class", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fields(made)
    assert [each.name for each in fields(made)] == ["first", "second", "third"]
