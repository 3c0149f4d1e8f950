"""The pure functions of embedding: texts, models, dialects, validation of vectors, calibration statistics."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.embedding import dialects, models
from hermes_memory_pgvector.embedding.calibration import PASSAGES, QUERIES, SHARE_BELOW, noise_floor
from hermes_memory_pgvector.embedding.vectors import TextRefused, prepared, truncated, validated
from hermes_memory_pgvector.errors import EmbedderMismatch

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=60)


# Texts


@given(ANY_TEXT, st.integers(1, 40))
def test_a_prepared_text_is_short_valid_utf8(text: str, chars_max: int) -> None:
    try:
        clean = prepared(text, chars_max)
    except ValueError:
        return
    assert 0 < len(clean) <= chars_max
    assert clean == clean.strip()
    assert "\0" not in clean
    clean.encode("utf-8")


@pytest.mark.parametrize("text", ["", "  \n\t", "\0", " \0 "])
def test_an_empty_text_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="empty text"):
        prepared(text, 100)


def test_a_lone_surrogate_is_replaced_and_the_rest_is_kept() -> None:
    assert prepared("tea \ud83d time", 100) == "tea ? time"


@given(st.text(max_size=60), st.integers(0, 80))
def test_truncation_loses_at_most_three_bytes_more_than_needed(text: str, bytes_max: int) -> None:
    head = truncated(text, bytes_max)
    size = len(head.encode())
    assert text.startswith(head)
    assert min(bytes_max, len(text.encode())) - 3 <= size <= bytes_max


# Models


@pytest.mark.parametrize(
    "name",
    [
        "nomic-embed-text",
        "nomic-embed-text:latest",
        "nomic-embed-text:v1.5",
        "nomic-ai/nomic-embed-text-v1.5",
        "text-embedding-nomic-embed-text-v1.5",
        "hf.co/nomic-ai/nomic-embed-text-v1.5-GGUF:Q4_K_M",
        "/models/NOMIC-EMBED-TEXT-v1.5.f16.gguf",
    ],
)
def test_nomic_is_recognized_by_all_its_names(name: str) -> None:
    known = models.known(name)
    assert (known.dimensions, known.query_prefix, known.passage_prefix) == (768, "search_query: ", "search_document: ")


@pytest.mark.parametrize(
    ("name", "dimensions", "query_prefix", "passage_prefix"),
    [
        ("intfloat/multilingual-e5-base", 768, "query: ", "passage: "),
        ("e5-large-v2", 1024, "query: ", "passage: "),
        ("BAAI/bge-small-en-v1.5", 384, "Represent this sentence for searching relevant passages: ", ""),
        ("bge-m3:latest", 1024, "", ""),
        ("mxbai-embed-large", 1024, "Represent this sentence for searching relevant passages: ", ""),
        ("text-embedding-3-small", 1536, "", ""),
        ("all-minilm:l6-v2", 384, "", ""),
        ("somebody/homemade-model", None, "", ""),
        ("some5-small", None, "", ""),
    ],
)
def test_models_get_the_prefixes_they_were_trained_with(
    name: str, dimensions: int | None, query_prefix: str, passage_prefix: str
) -> None:
    known = models.known(name)
    assert (known.dimensions, known.query_prefix, known.passage_prefix) == (dimensions, query_prefix, passage_prefix)


def test_an_instructed_e5_has_a_prefix_of_its_own() -> None:
    assert models.known("intfloat/multilingual-e5-large-instruct").query_prefix.startswith("Instruct: ")


def test_the_latest_tag_is_not_part_of_the_name_of_a_model() -> None:
    assert models.canonical("nomic-embed-text:latest") == models.canonical("nomic-embed-text")
    assert models.canonical("nomic-embed-text:v1.5") == "nomic-embed-text:v1.5"


# Dialects

OPENAI, OLLAMA = "http://h/v1/embeddings", "http://h/api/embed"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:11434", ["http://h:11434/api/embed", "http://h:11434/v1/embeddings"]),
        ("http://h/", ["http://h/api/embed", "http://h/v1/embeddings"]),
        ("http://h/v1", ["http://h/v1/embeddings"]),
        ("http://h/v1/embeddings", ["http://h/v1/embeddings"]),
        ("http://h/deploy/embeddings?api-version=3", ["http://h/deploy/embeddings?api-version=3"]),
        ("http://h/api", ["http://h/api/embed"]),
        ("http://h/api/embed", ["http://h/api/embed"]),
        ("http://h/llm", ["http://h/llm/api/embed", "http://h/llm/v1/embeddings", "http://h/llm/embeddings"]),
    ],
)
def test_a_path_that_names_a_dialect_decides_and_else_both_are_tried(url: str, expected: list[str]) -> None:
    assert list(dialects.candidates(url, "auto")) == expected
    assert [dialects.is_ollama(address) for address in expected] == [address.endswith("/embed") for address in expected]


def test_a_named_dialect_is_the_only_one_tried() -> None:
    assert dialects.candidates("http://h", "openai") == (OPENAI,)
    assert dialects.candidates("http://h/api/embeddings", "ollama") == (OLLAMA,)


@given(st.lists(st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=5), min_size=1, max_size=6), st.randoms())
def test_openai_answers_are_read_in_index_order_as_base64_or_floats(rows: list[list[float]], random: object) -> None:
    data = [
        {"index": i, "embedding": row if i % 2 else base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()}
        for i, row in enumerate(rows)
    ]
    random.shuffle(data)  # type: ignore[attr-defined]
    assert [list(row) for row in dialects.parse_answer(OPENAI, json.dumps({"data": data}).encode())] == rows


@pytest.mark.parametrize(
    ("address", "content"),
    [
        (OPENAI, b"<html>"),
        (OPENAI, b"[]"),
        (OPENAI, b'{"data": 3}'),
        (OPENAI, b'{"data": [3]}'),
        (OPENAI, b'{"data": [{"index": 0, "embedding": 3}]}'),
        (OPENAI, b'{"data": [{"index": 0, "embedding": "AAA"}]}'),
        (OPENAI, b'{"data": [{"index": 0, "embedding": "AAAA"}]}'),
        (OPENAI, b'{"data": [{"index": 1, "embedding": [1]}]}'),
        (OPENAI, b'{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}'),
        (OPENAI, b'{"data": [{"index": 0, "embedding": [1]}, {"embedding": [1]}]}'),
        (OLLAMA, b'{"error": "Unexpected endpoint"}'),
        (OLLAMA, b"[" * 100_000),
        (OLLAMA, b'{"embeddings": [["a", 1.0]]}'),
        (OLLAMA, b'{"embeddings": [[null]]}'),
        (OLLAMA, b'{"embeddings": [3]}'),
    ],
)
def test_answers_of_another_shape_are_errors(address: str, content: bytes) -> None:
    with pytest.raises(dialects.WrongShape):
        dialects.parse_answer(address, content)


# Answers


@pytest.mark.parametrize("factor", [1e-300, 1.0, 1e200])
def test_vectors_are_scaled_to_unit_length_and_keep_their_direction(factor: float) -> None:
    (vector,) = validated([[30 * factor, 40 * factor]], count=1, dimensions=2, source="m")
    assert vector == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize(
    ("raw", "count", "dimensions", "says"),
    [
        ([[1.0]], 2, None, "1 vectors to 2 texts"),
        ([[1.0, 2.0]], 1, 3, "vectors of 2 numbers where 3 are expected"),
        ([[1.0, 2.0], [1.0]], 2, None, "different lengths: 2 numbers first, 1 in number 2"),
        ([[]], 1, None, "different lengths"),
        ([[math.nan, 1.0]], 1, None, "not finite"),
        ([[math.inf, -math.inf]], 1, None, "not finite"),
        ([[1e308] * 4], 1, None, "not finite"),
        ([[0.0, -0.0]], 1, None, "only zeros"),
        ([[5e-324] * 384], 1, None, "only zeros"),
    ],
)
def test_an_invalid_answer_is_refused_with_the_numbers_found(
    raw: list[list[float]], count: int, dimensions: int | None, says: str
) -> None:
    with pytest.raises(EmbedderMismatch, match=says) as caught:
        validated(raw, count=count, dimensions=dimensions, source="m")
    assert not isinstance(caught.value, TextRefused)


def test_one_bad_vector_among_good_ones_refuses_its_text() -> None:
    with pytest.raises(TextRefused, match="1 of 3 vectors, first in number 2") as caught:
        validated([[1.0], [math.nan], [2.0]], count=3, dimensions=1, source="m")
    assert caught.value.index == 1


def test_a_single_bad_vector_of_a_trusted_embedder_refuses_its_text() -> None:
    with pytest.raises(TextRefused):
        validated([[0.0]], count=1, dimensions=1, source="m", trusted=True)


# Calibration


class Placed:
    """An embedder that places texts at random."""

    model, dimensions = "placed", 3

    def __init__(self, seed: int) -> None:
        vectors = np.random.default_rng(seed).normal(size=(len(QUERIES) + len(PASSAGES), 3))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        self.queries = dict(zip(QUERIES, vectors.tolist(), strict=False))
        self.passages = vectors[len(QUERIES) :].tolist()

    @property
    def cosines(self) -> list[float]:
        return [float(np.dot(query, passage)) for query in self.queries.values() for passage in self.passages]

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[list[float]]:
        return self.passages if tuple(texts) == PASSAGES else []

    def embed_query(self, text: str, timeout_s: float) -> list[float]:
        return self.queries[text]

    def close(self) -> None:
        pass


@given(st.integers(0, 1000))
def test_the_floor_lies_within_the_measured_cosines_and_above_most(seed: int) -> None:
    embedder = Placed(seed)
    floor = noise_floor(embedder, 5)
    assert min(embedder.cosines) <= floor <= max(embedder.cosines)
    below = sum(value <= floor for value in embedder.cosines)
    assert SHARE_BELOW * len(embedder.cosines) - 1 <= below < len(embedder.cosines)


def test_an_outlying_passage_hardly_changes_the_floor() -> None:
    embedder = Placed(1)
    embedder.queries = {query: [0.1 + number / 1000, 0.99, 0.0] for number, query in enumerate(QUERIES)}
    embedder.passages = [[1.0, 0.0, 0.0]] * len(PASSAGES)
    usual = noise_floor(embedder, 5)
    embedder.passages[0] = [0.0, 1.0, 0.0]
    assert max(embedder.cosines) > 0.9
    assert noise_floor(embedder, 5) == pytest.approx(usual, abs=0.002)
