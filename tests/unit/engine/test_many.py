from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import emel
from emel.errors import PromptsFailedError, RequestError
from unit.engine.conftest import N_CTX, n_open

if TYPE_CHECKING:
    from collections.abc import Iterator

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 6}


def test_results_come_in_the_order_of_the_prompts(model: emel.Model) -> None:
    prompts = [f"{'x' * (index % 9)} prompt {index}" for index in range(50)]
    done = model.generate_many(prompts, **GREEDY)
    assert [each.text for each in done] == [model.generate(prompt, **GREEDY).text for prompt in prompts]
    assert model.generate_many([], **GREEDY) == []


def test_prompts_are_taken_when_their_turn_comes(model: emel.Model) -> None:
    taken: list[int] = []

    def prompts() -> Iterator[str]:
        for index in range(100):
            taken.append(index)
            assert index < 32 + model.wave.counters.n_length + model.wave.counters.n_stopped
            yield f"prompt {index}"

    assert len(model.generate_many(prompts(), temperature=0, max_tokens=2)) == 100
    assert taken == [*range(100)]


def test_failed_prompt_does_not_lose_the_others(model: emel.Model) -> None:
    prompts = ["one", "", "two", "x" * (N_CTX + 1)]
    with pytest.raises(PromptsFailedError, match="2 of 4 prompts failed; the first is prompt 1: the prompt") as caught:
        model.generate_many(prompts, **GREEDY)
    results = caught.value.results
    assert [type(each) for each in results] == [emel.Completion, RequestError, emel.Completion, RequestError]
    assert results[2].text == model.generate("two", **GREEDY).text  # type: ignore[union-attr]
    assert caught.value.hint == "error.results has the completions of the others"


def test_wrong_keywords_are_refused_before_a_prompt_is_taken(model: emel.Model) -> None:
    def prompts() -> Iterator[str]:
        raise AssertionError("taken")
        yield ""

    with pytest.raises(RequestError, match="top_p is 2"):
        model.generate_many(prompts(), top_p=2)


def test_what_the_prompts_raise_ends_those_that_run(model: emel.Model) -> None:
    def prompts() -> Iterator[str]:
        yield "one"
        raise KeyError("no more")

    with pytest.raises(KeyError):
        model.generate_many(prompts())
    assert n_open(model) == 0


def test_bar_is_shown_when_asked_for(model: emel.Model, capfd: pytest.CaptureFixture[str]) -> None:
    model.generate_many(["a", "b"], **GREEDY)
    assert capfd.readouterr().err == ""
    model.generate_many(["a", "b"], progress=True, **GREEDY)
    assert "2/2" in capfd.readouterr().err


def test_n_answers_are_those_of_their_seeds(model: emel.Model) -> None:
    hot: dict[str, Any] = {"temperature": 2.0, "max_tokens": 12}
    done = model.generate("to be", n=5, seed=7, **hot)
    assert done.choices[0].text == done.text
    alone = [model.generate("to be", seed=7 + index, **hot) for index in range(5)]
    assert [each.token_ids for each in done.choices] == [each.token_ids for each in alone]
    assert [each.seed for each in done.choices] == [7, 8, 9, 10, 11]
    assert len({each.seed for each in model.generate("to be", n=3, **hot).choices}) == 3


def test_n_answers_share_the_prompt(model: emel.Model) -> None:
    before = model.wave.counters.n_read_tokens
    done = model.generate("0123456789" * 4, n=20, temperature=0, max_tokens=4)  # more than there are lanes
    timings = [each.timings for each in done.choices]
    assert min(min(t.queue_seconds, t.prefill_seconds, t.decode_seconds) for t in timings) >= 0
    assert len({each.token_ids for each in done.choices}) == 1
    assert model.wave.counters.n_read_tokens - before < 40 + 13 * 9
    assert model.generate("ab", n=4, max_tokens=0).choices[3].text == ""


def test_n_needs_as_many_listeners(model: emel.Model) -> None:
    with pytest.raises(RequestError, match="n is 2, and 1 listens") as caught:
        model.stream("a", n=2)
    assert caught.value.hint == "ask for n answers with generate or chat"
    for n in (0, 257, 10**12):
        with pytest.raises(RequestError, match=f"n is {n}: allowed are whole numbers from 1 to 256"):
            model.generate("a", n=n)


@pytest.mark.parametrize("prompts", ["to be", b"to be", 5, None])
def test_one_prompt_is_not_many(prompts: Any, model: emel.Model) -> None:
    with pytest.raises(RequestError, match=r"the prompts are .*: they must be a list of texts"):
        model.generate_many(prompts)


def _conversation(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_many_chats_have_the_answers_they_have_alone(chatty: emel.Model) -> None:
    conversations = [_conversation(f"question {index}") for index in range(20)]
    done = chatty.chat_many(iter(conversations), **GREEDY)
    assert [each.text for each in done] == [chatty.chat(each, **GREEDY).text for each in conversations]
    assert chatty.chat_many([], **GREEDY) == []


def test_failed_chat_does_not_lose_the_others(chatty: emel.Model) -> None:
    with pytest.raises(PromptsFailedError, match=r"1 of 2 prompts failed; .* 1: messages\[0\]") as caught:
        chatty.chat_many([_conversation("a"), [{"role": "user"}]], **GREEDY)
    assert isinstance(caught.value.results[0], emel.Completion)


@pytest.mark.parametrize("conversations", ["to be", _conversation("to be"), _conversation("a")[0], None])
def test_one_chat_is_not_many(conversations: Any, model: emel.Model) -> None:
    with pytest.raises(RequestError, match=r"the conversations are .*: they must be a list of lists of mess") as caught:
        model.chat_many(conversations)
    assert "model.chat takes one" in str(caught.value.hint)


def test_no_chunks_are_made_for_whoever_waits_for_the_end(model: emel.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [model.generate(each, temperature=0, max_tokens=9).text for each in ("to be", "or")]

    def refuse(*_: object) -> None:
        raise AssertionError("nobody wants this chunk")

    monkeypatch.setattr("emel.engine.request.Request._chunk", refuse)
    assert model.generate("to be", temperature=0, max_tokens=9).text == expected[0]
    assert [each.text for each in model.generate_many(["to be", "or"], temperature=0, max_tokens=9)] == expected
