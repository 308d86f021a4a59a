from __future__ import annotations

import pytest

from emel.engine.failures import as_request_error, load_failures, request_failures
from emel.errors import EmelError, ModelLoadError, ModelNotFoundError, ModelReadError, RequestError
from emel.io.errors import SourceError


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ValueError("a"), ModelLoadError), (RuntimeError("b"), ModelLoadError), (OSError("c"), ModelReadError)],
)
def test_load_failures_are_of_the_api(error: Exception, kind: type[EmelError]) -> None:
    with pytest.raises(kind) as caught, load_failures():
        raise error
    assert type(caught.value) is kind
    assert str(caught.value) == str(error)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "error", [ModelNotFoundError("x", hint="y"), RequestError("x"), MemoryError("x"), KeyError("a defect")]
)
def test_load_failures_that_are_none_pass(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, load_failures():
        raise error
    assert caught.value is error
    assert caught.value.__cause__ is None


def test_request_failures_are_of_the_api() -> None:
    for error in (ValueError("a"), RuntimeError("a"), MemoryError("a"), SourceError("a")):
        with pytest.raises(RequestError) as caught, request_failures():
            raise error
        assert caught.value.__cause__ is error
    own = RequestError("own")
    with pytest.raises(RequestError) as caught, request_failures():
        raise own
    assert caught.value is own
    assert as_request_error(own) is own
    assert str(as_request_error(SystemExit())) == "SystemExit"
    with pytest.raises(KeyError), request_failures():
        raise KeyError("a defect")
