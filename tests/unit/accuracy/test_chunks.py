"""Chunks as llama.cpp's perplexity tool cuts them."""

from __future__ import annotations

import pytest

from emel.accuracy.chunks import cut_chunks
from emel.errors import RequestError


def test_chunks_follow_one_another_and_the_rest_is_left() -> None:
    chunks = cut_chunks(range(11), 4)
    assert chunks.ids == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_chunks_begin_with_the_begin_token_in_place_of_their_first() -> None:
    assert cut_chunks(range(8), 4, bos_id=99).ids == ((99, 1, 2, 3), (99, 5, 6, 7))


@pytest.mark.parametrize(("n_ctx", "first", "n_scored"), [(4, 2, 1), (5, 2, 2), (512, 256, 255), (513, 256, 256)])
def test_chunks_score_their_second_half_but_the_last_token(n_ctx: int, first: int, n_scored: int) -> None:
    chunks = cut_chunks(range(n_ctx), n_ctx)
    assert (chunks.first, chunks.n_scored) == (first, n_scored)


def test_chunks_can_be_limited() -> None:
    assert len(cut_chunks(range(40), 4, most=3).ids) == 3
    assert len(cut_chunks(range(40), 4, most=30).ids) == 10


def test_a_text_shorter_than_a_chunk_is_refused_by_length() -> None:
    seen = r"^the text has 3 tokens: a chunk needs 4\nhint: give a longer text, or a smaller -c$"
    with pytest.raises(RequestError, match=seen):
        cut_chunks(range(3), 4)


def test_a_chunk_without_scored_tokens_is_refused() -> None:
    with pytest.raises(RequestError, match=r"^a chunk of 3 tokens is too short: 4 or more are allowed$"):
        cut_chunks(range(9), 3)
