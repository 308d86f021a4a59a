from __future__ import annotations

import pytest

from emel.engine import other_keywords
from emel.engine.arguments import CONSTRAINTS, SAMPLING_FIELDS, checked_sampling
from emel.errors import RequestError

OURS = SAMPLING_FIELDS | {"stop", "n", *CONSTRAINTS}


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
