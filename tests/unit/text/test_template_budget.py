"""Hostile templates end quickly, in one clear error, with little memory (CVE-2024-34359 and its kin)."""

from __future__ import annotations

import tracemalloc

import pytest

from emel.text.chat import ChatTemplate, ChatTemplateError
from emel.text.template_budget import Budget, BudgetError

USER = {"role": "user", "content": "hi"}
STEPS = "the chat template takes too many steps"
LENGTH = "the chat template makes a value of"
SPENT = f"{STEPS}|{LENGTH}"
REFUSED = "unsupported format|has no attribute|expected str instance|not JSON|not iterable"  # by the operation, unseen
WIDTH = "too large a width"
WRITES = "the chat template writes more than"

HOSTILE = {
    "insides": (
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "access to attribute '__class__' of 'str' object is unsafe",
    ),
    "globals of a function": (
        "{{ raise_exception.__globals__.x }}",
        "attribute '__globals__' of 'function' object is unsafe",
    ),
    "globals of namespace": ("{{ namespace.__init__.__globals__ }}", "is unsafe"),
    "insides by format": ("{{ '{0.__class__.__mro__}'.format('') }}", "is unsafe"),
    "insides by attr": ("{{ (''|attr('__class__')).x }}", "unsafe"),
    "loops in loops": ("{% for i in range(9999) %}" * 5 + "{% endfor %}" * 5, STEPS),
    "calls that double": (
        "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        STEPS,
    ),
    "endless calls": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself too deeply"),
    "endless recursive loop": ("{% for a in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}", "calls itself too deeply"),
    "long range": ("{{ range(10**9) | list | length }}", LENGTH),
    "repeated text": ("{{ 'a' * 10**9 }}", LENGTH),
    "text repeated": ("{{ 10**9 * 'a' }}", LENGTH),
    "repeated list": ("{{ [1] * 10**9 }}", LENGTH),
    "doubled by ~": (
        "{% set n = namespace(s='ab') %}{% for i in range(64) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        SPENT,
    ),
    "doubled by +": (
        "{% set n = namespace(s='ab') %}{% for i in range(64) %}{% set n.s = n.s + n.s %}{% endfor %}",
        SPENT,
    ),
    "doubled list": (
        "{% set n = namespace(s=[1]) %}{% for i in range(64) %}{% set n.s = n.s + n.s %}{% endfor %}",
        SPENT,
    ),
    "doubled by join": (
        "{% set n = namespace(s='ab') %}{% for i in range(64) %}{% set n.s = [n.s, n.s] | join %}{% endfor %}",
        SPENT,
    ),
    "doubled by set": (
        (
            "{% set n = namespace(s='ab') %}{% for i in range(64) %}{% set x %}{{ n.s }}{{ n.s }}{% endset %}"
            "{% set n.s = x %}{% endfor %}"
        ),
        WRITES,
    ),
    "a gigabyte of output": ("{% for i in range(9999) %}{{ 'x' * 99999 }}{% endfor %}", WRITES),
    "a gigabyte of template": ("{% for i in range(9999) %}" + "x" * 99999 + "{% endfor %}", WRITES),
    "a gigabyte in a macro": (
        "{% macro f() %}" + "x" * 99999 + "{% endmacro %}{% for i in range(9999) %}{% set y = f() %}{% endfor %}",
        WRITES,
    ),
    "replaced by more": ("{{ ('a' * 9000) | replace('a', 'b' * 9000) }}", LENGTH),
    "method replaced by more": ("{{ ('a' * 9000).replace('a', 'b' * 9000) }}", LENGTH),
    "joined by much": ("{{ ('b' * 9000).join('a' * 9000) }}", LENGTH),
    "filter joined by much": ("{{ ('a' * 9000) | join('b' * 9000) }}", LENGTH),
    "filter joined by much by name": ("{{ ('a' * 9000) | join(d='b' * 9000) }}", LENGTH),
    "joined generator": ("{{ ('a,' * 9000).split(',') | map('upper') | join('b' * 9000) }}", SPENT),
    "width by %": ("{{ '%1000000000d' % 1 }}", WIDTH),
    "width from arguments by %": ("{{ '%*d' % (1000000000, 1) }}", WIDTH),
    "precision by %": ("{{ '%.1000000000f' % 1 }}", WIDTH),
    "width by format": ("{{ '{:1000000000}'.format(1) }}", WIDTH),
    "width from arguments by format": ("{{ '{:{}}'.format(1, 9) }}", WIDTH),
    "width by format_map": ("{{ '{a:1000000000}'.format_map({'a': 1}) }}", WIDTH),
    "fields by format": ("{% set s = 'a' * 9000 %}{{ ('{0}' * 900).format(s) }}", LENGTH),
    "centred": ("{{ 'a'.center(10**9) }}", LENGTH),
    "padded": ("{{ 'a'.zfill(10**9) }}", LENGTH),
    "tabs": ("{{ '\t'.expandtabs(10**9) }}", LENGTH),
    "indented": ("{{ ('a\n' * 9000) | indent(9000) }}", LENGTH),
    "indented by text": ("{{ ('a\n' * 9000) | indent('b' * 9000) }}", LENGTH),
    "numbers by **": ("{{ 10 ** (10 ** 9) }}", "a number of"),
    "numbers by *": (
        "{% set n = namespace(x=9) %}{% for i in range(64) %}{% set n.x = n.x * n.x %}{% endfor %}",
        "a number of",
    ),
    "bytes of a number": ("{{ (1).to_bytes(9, 'big') }}", "attribute 'to_bytes' of 'int' object is unsafe"),
    "rounding": ("{{ 1 | round(-(10**9)) }}", LENGTH),
    "lorem ipsum": ("{{ lipsum(n=3) }}", "'lipsum' is undefined"),
    "long slices": ("{% set s = 'a' * 900000 %}{% for i in range(9999) %}{% set t = s[1:] %}{% endfor %}", STEPS),
    "long comparisons": (
        "{% set s = 'a' * 900000 %}{% for i in range(9999) %}{% if 'ab' in s %}{% endif %}{% endfor %}",
        STEPS,
    ),
    "long lists": ("{% set s = range(90000) | list %}{% for i in s %}{% set t = s | sort %}{% endfor %}", STEPS),
}

_SHARED = "{% set n = namespace(x=['a'], y=['a']) %}{% for i in range(40) %}SET{% endfor %}USE"
_BUILT = {
    "lists": "{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}",
    "tuples": "{% set n.x = (n.x, n.x) %}{% set n.y = (n.y, n.y) %}",
    "dicts": "{% set n.x = {'a': n.x, 'b': n.x} %}{% set n.y = {'a': n.y, 'b': n.y} %}",
    "dict calls": "{% set n.x = dict(a=n.x, b=n.x) %}{% set n.y = dict(a=n.y, b=n.y) %}",
    "namespaces": "{% set n.x = namespace(a=n.x, b=n.x) %}{% set n.y = namespace(a=n.y, b=n.y) %}",
    "assigned namespaces": "{% set m = namespace() %}{% set m.a = n.x %}{% set m.b = n.x %}{% set n.x = m %}",
    "doubled lists": "{% set n.x = [n.x] * 2 %}{% set n.y = [n.y] + [n.y] %}",
    "defaults": "{% set n.x = [1, 2] | map(attribute='z', default=n.x) | list %}",
    "arguments": "{% macro f(a) %}{{ a }}{% endmacro %}{% set n.x = [n.x, n.x] %}{% set z = f(n.x) %}",
}
_USED = [
    "{{ n.x }}", "{{ n.x | tojson }}", "{{ n.x ~ '' }}", "{{ n.x | string }}", "{{ '%s' % n.x }}",
    "{{ n.x | join }}", "{{ {'a': n.x} | dictsort }}", "{{ n.x | default('') }}", "{{ n.x | trim }}",
    "{{ [n.x] | map('string') | list }}", "{{ '{}'.format(n.x) }}", "{{ raise_exception(n.x) }}",
    "{{ n.x == n.y }}", "{{ n.x == n.y == 1 }}", "{{ n.x.count(n.y) }}{{ n.x }}",
    "{{ n.x is eq(n.y) }}", "{{ n.x in [n.y] }}", "{{ {'a': n.x}.values() }}", "{{ n }}",
    "{{ ['a', 'b'] | join(n.x) }}", "{{ ''.join(n.x) }}",
]  # fmt: skip


@pytest.mark.parametrize(
    ("built", "use"),
    [("lists", use) for use in _USED]
    + [(built, use) for built in _BUILT for use in _USED[:3]]
    + [(built, use) for built in ("assigned namespaces", "defaults") for use in _USED],
)
@pytest.mark.timeout(5)
def test_values_that_share_their_parts_end_in_one_clear_error(built: str, use: str) -> None:
    with pytest.raises(ChatTemplateError, match=rf"{SPENT}|{REFUSED}"):
        ChatTemplate(_SHARED.replace("SET", _BUILT[built]).replace("USE", use)).render([USER])


def test_deeply_nested_value_ends_in_one_clear_error() -> None:
    source = "{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] %}{% endfor %}"
    with pytest.raises(ChatTemplateError, match="the chat template nests values more than 200 deep"):
        ChatTemplate(source).render([USER])


def test_text_of_a_mapping_used_many_times_is_counted_each_time() -> None:
    with pytest.raises(ChatTemplateError, match=LENGTH):
        ChatTemplate("{{ ('%(a)s' * 9000) % {'a': 'b' * 9000} }}").render([USER])


def test_text_of_many_references_is_counted_each_time() -> None:
    with pytest.raises(ChatTemplateError, match=SPENT):
        ChatTemplate("{% set s = 'a' * 90000 %}{{ [s] * 90000 }}").render([USER])


def test_nested_values_of_common_templates_pass() -> None:
    source = (
        "{% for m in messages %}{% set x = {'role': m.role, 'parts': [m.content, m.content]} %}"
        "{% if m == messages[-1] and loop.index0 == messages | length - 1 %}{{ x | tojson(indent=2) }}{% endif %}"
        "{% if [m.role, 1] == ['user', 1] %}u{% endif %}{% endfor %}"
    )
    messages = [{"role": "user", "content": f"message {i} " * 20} for i in range(500)]
    assert ChatTemplate(source).render(messages).count("u") >= 500


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.timeout(20)
def test_hostile_template_ends_in_one_clear_error(kind: str) -> None:
    source, message = HOSTILE[kind]
    if message != STEPS:  # counting memory makes many small steps ten times slower
        tracemalloc.start()
    try:
        with pytest.raises(ChatTemplateError, match=message):
            ChatTemplate(source).render([USER])
        assert not tracemalloc.is_tracing() or tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


def test_budget_grows_with_the_conversation() -> None:
    # A loop over all messages for each message, as templates that look for the last user message do.
    source = (
        "{% for m in messages %}{% set n = namespace(last=0) %}{% for o in messages %}{% if o.role == 'user' %}"
        "{% set n.last = loop.index %}{% endif %}{% endfor %}{{ m.content | trim }}{{ n.last }}\n{% endfor %}"
    )
    messages = [{"role": "user", "content": f"message {i} " * 20} for i in range(300)]
    assert ChatTemplate(source).render(messages).count("\n") == 300


def test_budget_lets_long_texts_pass() -> None:
    text = "word " * 400_000
    source = "{% set c = messages[0].content.replace('\\n', ' ') | trim %}{{ '<' + c + '>' }}{{ c ~ '' }}"
    assert ChatTemplate(source).render([{"role": "user", "content": text}]) == f"<{text.strip()}>{text.strip()}"


def test_budget_outside_a_rendering_is_small() -> None:
    with pytest.raises(BudgetError, match="a value of 1000001 characters; at most 1000000 are allowed"):
        Budget(0, 0).check_length(1_000_001)
