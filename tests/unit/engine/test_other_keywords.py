from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

import emel
from emel.engine import other_keywords
from emel.engine.arguments import CONSTRAINTS, KEYWORDS_OF_REQUESTS, SAMPLING_FIELDS, checked_sampling
from emel.engine.options import LoadOptions
from emel.errors import RequestError

OURS = SAMPLING_FIELDS | {"stop", "n", *CONSTRAINTS}


LOAD = set(emel.load.__kwdefaults__ or ())


def test_tables_of_loading_lead_from_names_that_are_not_ours_to_names_that_are() -> None:
    others = " ".join([*other_keywords._OTHER_LOAD_NAMES.values(), *other_keywords._LOAD_HINTS]).split()
    assert len(others) == len(set(others))
    assert not set(others) & (LOAD | KEYWORDS_OF_REQUESTS)
    assert set(other_keywords._OTHER_LOAD_NAMES) <= LOAD
    assert {each.name for each in fields(LoadOptions)} == LOAD


@pytest.mark.parametrize(
    ("name", "guess", "hint"),
    [
        ("n_thread", "n_threads", None),
        ("chat_format", "chat_template", None),
        ("num_ctx", "n_ctx", None),
        ("type_k", "kv_type", None),
        ("n_gpu_layers", None, "CPUs alone"),
        ("verbose", None, "leave it out"),
        ("n_batch", None, "leave it out"),
        ("flurb", None, None),
    ],
)
def test_keyword_of_another_loader_is_answered_with_ours(name: str, guess: str | None, hint: str | None) -> None:
    load: Any = emel.load
    with pytest.raises(RequestError) as caught:
        load("no such model", **{name: 1})
    meant = f" (did you mean {guess}?)" if guess else ""
    assert str(caught.value).startswith(f"unknown keyword of emel.load {name!r}{meant}: known are activations, ")
    assert (hint is None and caught.value.hint is None) or (hint is not None and hint in str(caught.value.hint))


@pytest.mark.parametrize(("name", "ours"), [("temperature", "temperature"), ("max_new_tokens", "max_tokens")])
def test_keyword_of_a_request_is_sent_to_the_request(name: str, ours: str) -> None:
    load: Any = emel.load
    with pytest.raises(RequestError, match=f"emel.load has no '{name}'") as caught:
        load("no such model", **{name: 1})
    assert caught.value.hint == f"it belongs to requests: model.chat(messages, {ours}=...)"


def test_tables_lead_from_names_that_are_not_ours_to_names_that_are() -> None:
    others = " ".join([*other_keywords._OTHER_NAMES.values(), *other_keywords._HINTS]).split()
    assert len(others) == len(set(others))
    assert not set(others) & OURS
    assert set(other_keywords._OTHER_NAMES) <= OURS


@pytest.mark.parametrize(
    ("name", "guess", "hint"),
    [
        ("max_new_tokens", "max_tokens", None),
        ("num_predict", "max_tokens", None),
        ("temp", "temperature", None),
        ("top_kk", "top_k", None),
        ("stream", None, "model.stream(prompt)"),
        ("do_sample", None, "temperature=0"),
        ("response_format", None, "json_schema="),
        ("tools", None, "emel serve"),
        ("n_ctx", None, "emel.load"),
        ("flurb", None, None),
    ],
)
def test_keyword_of_another_library_is_answered_with_ours(name: str, guess: str | None, hint: str | None) -> None:
    with pytest.raises(RequestError) as caught:
        checked_sampling({name: 1})
    meant = f" (did you mean {guess}?)" if guess else ""
    assert str(caught.value).startswith(f"unknown sampling parameter {name!r}{meant}: known are ")
    assert (hint is None and caught.value.hint is None) or (hint is not None and hint in str(caught.value.hint))
