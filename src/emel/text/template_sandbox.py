"""The Jinja environment chat templates run in: what transformers offers them, in the immutable sandbox, on a budget.

The sandbox keeps templates from Python's insides (CVE-2024-34359). The budget is enforced where work happens: loops,
joins and outputs are wrapped when the template is parsed; calls, operators and filters where the sandbox hands them
over. Filters and methods are limited to those that chat templates use and whose cost is known.

Reference for templates: transformers' `_compile_jinja_template`
(https://github.com/huggingface/transformers/blob/main/src/transformers/utils/chat_template_utils.py).
"""

from __future__ import annotations

import json
from functools import wraps
from typing import TYPE_CHECKING, Any, cast

from jinja2 import nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.runtime import LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from emel.text.template_budget import SHALLOW_CALL, check_binary, check_join, check_method, current
from emel.text.template_extent import CONTAINERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from jinja2.parser import Parser
    from jinja2.runtime import Context

# fmt: off
_FILTERS = frozenset({
    "abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "forceescape",
    "groupby", "indent", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject",
    "rejectattr", "replace", "reverse", "round", "safe", "select", "selectattr", "sort", "string", "sum", "title",
    "trim", "unique", "upper", "wordcount",
})
# Methods that lead out of text and numbers, or multiply lengths in ways nothing here counts.
_BARRED = frozenset({"decode", "encode", "from_bytes", "fromhex", "maketrans", "to_bytes", "translate"})
# fmt: on
_GLOBALS = frozenset({"dict", "joiner", "namespace"})
_DATE_CHARACTERS = 100
_MAX_INDENT = 16


class _GenerationTag(Extension):
    """`{% generation %}` marks what a model wrote, for training; its body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's interface

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Compiles and runs chat templates; every rendering must be inside `with spending(budget)`."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # folding constants would run filters while compiling, outside any budget
            extensions=[_GenerationTag, loopcontrols],
        )
        self.globals = {name: self.globals[name] for name in _GLOBALS}
        self.globals["range"] = _bounded_range
        self.filters = {name: _guarded(name, self.filters[name]) for name in _FILTERS}
        self.filters["tojson"] = _guarded("tojson", _to_json)
        self.filters |= {"_emel_each": _each, "_emel_join": _join, "_emel_emit": _emit, "_emel_measured": _measured}
        self.tests = {name: _measured_test(cast("Callable[..., Any]", test)) for name, test in self.tests.items()}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Meter().visit(tree)
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operator, after its cost is known."""
        check_binary(current(), operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - Jinja's names
        """A call, after its cost is known."""
        subject = getattr(__obj, "__self__", None)
        name = SHALLOW_CALL if isinstance(__obj, Macro | LoopContext) else getattr(__obj, "__name__", "")
        if name == "join" and isinstance(subject, str) and len(args) == 1:
            pieces = args[0] if isinstance(args[0], str) else list(args[0])
            check_join(current(), pieces, subject)
            args = (pieces,)
        else:
            check_method(current(), subject, name if isinstance(name, str) else "", args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may read an attribute."""
        return attr not in _BARRED and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """str.format and str.format_map, sandboxed by Jinja, after their cost is known."""
        inner = super().wrap_str_format(value)
        if inner is None:
            return None

        def format_within_budget(*args: Any, **kwargs: Any) -> str:
            check_method(current(), value.__self__, "format", args, kwargs)
            return inner(*args, **kwargs)

        return format_within_budget


class _Meter(NodeTransformer):
    """Puts the budget's filters into a parsed template."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - Jinja's interface
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_emel_each")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "_emel_join")

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, "_emel_measured") if node.items else node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, "_emel_measured") if node.items and node.ctx == "load" else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, "_emel_measured") if node.items else node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:  # noqa: N802
        self.generic_visit(node)
        operands = [node.expr, *(each.expr for each in node.ops)]
        if len(operands) > 2 or not any(isinstance(each, nodes.Const) for each in operands):  # compared in no depth
            node.expr = _filtered(node.expr, "_emel_measured")
            for each in node.ops:
                each.expr = _filtered(each.expr, "_emel_measured")
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Getitem:  # noqa: N802
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Const | nodes.Slice):
            node.arg = _filtered(node.arg, "_emel_measured")
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Output:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [_filtered(each, "_emel_emit") for each in node.nodes]
        return node


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(cast("nodes.Expr", node), name, [], [], None, None, lineno=node.lineno)


@pass_context
def _each(_: Context, values: Iterable[Any]) -> Iterator[Any]:
    iterator = iter(values)  # what cannot be looped over says so here, before any round
    budget = current()

    def rounds() -> Iterator[Any]:
        for value in iterator:
            budget.charge()
            yield value

    return rounds()


@pass_context
def _join(_: Context, values: list[Any]) -> str:
    check_join(current(), values, "")
    pieces = [str(each) for each in values]
    return "".join(pieces)


@pass_context
def _emit(_: Context, value: Any) -> str:
    if isinstance(value, CONTAINERS):
        current().measure(value)
    text = str(value)
    current().emit(len(text))
    return text


@pass_context
def _measured(_: Context, value: Any) -> Any:
    if isinstance(value, CONTAINERS):
        current().measure(value)
    return value


def _measured_test(test: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(test)
    def within_budget(*args: Any, **kwargs: Any) -> Any:
        if len(args) > 1 and any(isinstance(each, CONTAINERS) for each in args[1:]):  # `is eq`, `is in` and the like
            current().measure(*args)
        return test(*args, **kwargs)

    return within_budget


def _guarded(name: str, filter_: Callable[..., Any]) -> Callable[..., Any]:
    # Jinja passes the context or environment first to filters that ask for it (and `wraps` keeps the mark).
    n_passed = 1 if hasattr(filter_, "jinja_pass_arg") else 0

    @wraps(filter_)
    def within_budget(*args: Any, **kwargs: Any) -> Any:
        subject, *others = args[n_passed:]
        if name == "join":
            subject = subject if isinstance(subject, str | list | tuple) else list(subject)
            check_join(current(), subject, others[0] if others else kwargs.get("d", ""))
        else:
            check_method(current(), subject, name, tuple(others), kwargs)
        return filter_(*args[:n_passed], subject, *others, **kwargs)

    return within_budget


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own escapes HTML characters; models are trained on what transformers renders.
    if indent is not None and not 0 <= int(indent) <= _MAX_INDENT:
        raise ValueError(f"tojson takes an indent from 0 to {_MAX_INDENT}, not {indent!r:.40}")
    found = current().measure(value)
    current().check_length(found.n_characters + found.n_elements * found.depth * int(indent or 0))
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _bounded_range(*args: int) -> range:
    values = range(*args)
    budget = current()
    budget.check_length(len(values))
    budget.charge(1 + len(values) // 16)
    return values


def check_date_format(form: object) -> str:
    """A strftime format that cannot write much; ValueError otherwise."""
    digits = "".join(each if each.isdigit() else " " for each in str(form)).split()
    if not isinstance(form, str) or len(form) > _DATE_CHARACTERS or any(len(each) > 2 for each in digits):
        raise ValueError(f"strftime_now takes a date format of at most {_DATE_CHARACTERS} characters, not {form!r:.40}")
    return form
