"""Recall with one rule changed at a time, computed from stored rows by the functions of the package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from hermes_memory_pgvector.embedding import factory
from hermes_memory_pgvector.model import RecallRequest, Scope
from hermes_memory_pgvector.recall import fusion, recaller, selection, word_search
from hermes_memory_pgvector.recall.vector_search import nearest_of
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.queries import WORDS_MAX
from hermes_memory_pgvector.store.retrieval import Key, Row, ScannedRows
from hermes_memory_pgvector.text import tokenizer

from .cases import Case, Question, matched
from .environment import Endpoint
from .measures import means, measures

EMBED_S_MAX = 60.0
# Module and name of a constant, and its changed value.
Change = tuple[ModuleType, str, float]
NO_CONTEXT = "turns embedded without the turn before"
CHANGES: dict[str, Sequence[Change]] = {
    "everything": (),
    "without vector search (weight 0)": ((fusion, "VECTOR_WEIGHT", 0.0), (fusion, "OUTSTANDING_SHARE", 0.0)),
    "without word search (weight 1)": ((fusion, "VECTOR_WEIGHT", 1.0),),
    "vector weight 0.1 instead of 0.17": ((fusion, "VECTOR_WEIGHT", 0.1),),
    "vector weight 0.25": ((fusion, "VECTOR_WEIGHT", 0.25),),
    "rows that stand out by their vectors count no more": ((fusion, "OUTSTANDING_SHARE", 0.0),),
    "… count as 0.4 of what no row holds instead of 0.8": ((fusion, "OUTSTANDING_SHARE", 0.4),),
    "… stand out from 3 deviations on instead of 4": ((fusion, "OUTSTANDING_DEVIATIONS", 3.0),),
    "words that ask with their full weight": ((word_search, "QUESTION_SHARE", 1.0),),
    "function words with their full weight": ((word_search, "FUNCTION_SHARE", 1.0),),
    NO_CONTEXT: (),
    "no words and no scores of neighbours": ((fusion, "CONTEXT_SHARE", 0.0), (fusion, "NEIGHBOUR_SHARE", 0.0)),
    "no words of neighbours": ((fusion, "CONTEXT_SHARE", 0.0),),
    "words of neighbours 0.3 instead of 0.45": ((fusion, "CONTEXT_SHARE", 0.3),),
    "words of neighbours 0.6": ((fusion, "CONTEXT_SHARE", 0.6),),
    "no scores of neighbours": ((fusion, "NEIGHBOUR_SHARE", 0.0),),
    "scores of neighbours 0.1 instead of 0.17": ((fusion, "NEIGHBOUR_SHARE", 0.1),),
    "scores of neighbours 0.25": ((fusion, "NEIGHBOUR_SHARE", 0.25),),
    "one step instead of three": ((fusion, "STEPS", 1),),
    "two steps": ((fusion, "STEPS", 2),),
    "four steps": ((fusion, "STEPS", 4),),
    "IDF instead of its power of 1.6": ((word_search, "IDF_POWER", 1),),
    "IDF to the power of 2": ((word_search, "IDF_POWER", 2),),
    "50 rows from each search instead of 100": ((recaller, "SEARCH_LIMIT", 50),),
    "200 rows from each search": ((recaller, "SEARCH_LIMIT", 200),),
    "all rows count as short": ((word_search, "LENGTHS_MAX", 1.0),),
    "rows from 20 terms on count as longer, instead of 30": ((word_search, "LENGTH", 20),),
    "rows from 45 terms on": ((word_search, "LENGTH", 45),),
    "… three times as long at most, instead of 4.5": ((word_search, "LENGTHS_MAX", 3.0),),
    "… ten times": ((word_search, "LENGTHS_MAX", 10.0),),
    "BM25 k1 0.7 instead of 1.1": ((word_search, "BM25_K1", 0.7),),
    "BM25 k1 1.6": ((word_search, "BM25_K1", 1.6),),
    "the sides of a turn one hit from 0.9 of the better one's score on, instead of 0.5": (
        (selection, "SIDE_SHARE", 0.9),
    ),
    "… always": ((selection, "SIDE_SHARE", 0.0),),
}


@dataclass(frozen=True)
class Stored:
    """The stored rows of one case in order, with their texts, vectors (rows × dimensions) and terms.

    `pieces` are further vectors, each of the row at that place of `piece_rows`.
    """

    rows: ScannedRows
    stored: Mapping[Key, Row]
    vectors: NDArray[np.float64]
    terms: Sequence[frozenset[str]]
    piece_rows: NDArray[np.int64]
    pieces: NDArray[np.float64]

    def scan(self, terms: Mapping[str, str], vector: NDArray[np.float64]) -> ScannedRows:
        """The rows with their similarity to a question and its terms that they hold. `terms` maps term to word."""
        held = np.array([[term in of_row for term in terms] for of_row in self.terms], dtype=bool)
        held, cosines = held.reshape(len(self.terms), -1), self.vectors @ vector
        np.maximum.at(cosines, self.piece_rows, self.pieces @ vector)
        return self.rows._replace(cosines=cosines, held=held, words=list(terms.values()))


def ablation(cases: Sequence[Case], dsn: str, endpoint: Endpoint, limit: int) -> dict[str, dict[str, float]]:
    """The mean measures for each change, in the order of CHANGES, computed from the rows at `dsn`."""
    url = endpoint.url and f"{endpoint.url}/v1"
    with closing(factory.build(Settings(embed_url=url, embed_model=endpoint.model, embed_chars_max=6000))) as embedder:
        with psycopg.connect(dsn) as connection:
            stored = [_stored(connection, case.theme) for case in cases]
            terms = [[_terms(connection, question.text) for question in case.questions] for case in cases]
        vectors = [[np.array(embedder.embed_query(q.text, EMBED_S_MAX)) for q in case.questions] for case in cases]
        without_context = [
            replace(
                one,
                vectors=np.array(
                    embedder.embed_passages([row.content for row in one.stored.values()], EMBED_S_MAX * 60)
                ),
            )
            for one in stored
        ]

    def asked(memories: Sequence[Stored]) -> list[tuple[Case, Question, Stored, ScannedRows]]:
        return [
            (case, question, one, one.scan(*given))
            for case, one, *of_case in zip(cases, memories, terms, vectors, strict=True)
            for question, *given in zip(case.questions, *of_case, strict=True)
        ]

    as_stored, as_no_context = asked(stored), asked(without_context)
    results = {}
    for name, changes in CHANGES.items():
        with _changed(changes):
            results[name] = means(
                [
                    measures(_found(case, question, one, rows, limit), question.evidence)
                    for case, question, one, rows in (as_no_context if name == NO_CONTEXT else as_stored)
                ]
            )
    return results


@contextmanager
def _changed(changes: Sequence[Change]) -> Iterator[None]:
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def _stored(connection: psycopg.Connection[Any], theme: str) -> Stored:
    rows = connection.execute(
        "select id, dense_rank() over (order by session_id), embedding::real[], tsvector_to_array(search), "
        "content, ts, role, session_id "
        "from conversations where agent_identity = %s order by session_id, ts, id",
        [theme],
    ).fetchall()
    ids, sessions, vectors, terms, *_ = zip(*rows, strict=True)
    places = {number: place for place, number in enumerate(ids)}
    pieces = connection.execute(
        "select row_id, embedding::real[] from conversation_pieces where agent_identity = %s", [theme]
    ).fetchall()
    keys = [(theme, number) for number in ids]
    nothing = np.zeros(len(rows))
    whole = ScannedRows(
        keys, np.array(ids), np.array(sessions), np.arange(len(rows), dtype=float), nothing,
        np.array([len(of_row) for of_row in terms], dtype=np.int32), np.zeros((len(rows), 0), dtype=bool), [],
    )  # fmt: skip
    stored = {(theme, row[0]): Row(theme, row[0], row[4], None, *row[5:], target="") for row in rows}
    piece_rows = np.array([places[number] for number, _ in pieces], dtype=np.int64)
    piece_vectors = np.array([vector for _, vector in pieces]).reshape(len(pieces), len(vectors[0]))
    terms_of_rows = [frozenset(of_row) for of_row in terms]
    return Stored(whole, stored, np.array(vectors), terms_of_rows, piece_rows, piece_vectors)


def _terms(connection: psycopg.Connection[Any], question: str) -> dict[str, str]:
    """The terms of a question, each with the first word that it comes from."""
    rows = connection.execute(
        "select lexeme, word from unnest(%s::text[]) with ordinality as w (word, n) "
        "cross join unnest(tsvector_to_array(to_tsvector('english', word))) as lexeme order by n desc",
        [tokenizer.query(question, WORDS_MAX)],
    )
    return dict(rows.fetchall())


def _found(case: Case, question: Question, stored: Stored, rows: ScannedRows, limit: int) -> list[frozenset[str]]:
    """The ids of the texts that each hit contains, best first."""
    nearest = nearest_of(rows, recaller.SEARCH_LIMIT)
    matches = word_search.bm25(rows, recaller.SEARCH_LIMIT, total=len(rows.keys))
    found = fusion.candidates_of(rows, nearest, matches)
    scores = fusion.fuse(found, span=fusion.span_of([*nearest.values()], len(rows.keys)))
    request = RecallRequest(
        query=question.text, scope=Scope(own=case.theme, themes=(case.theme,)), limit=limit, budget_s=1.0
    )
    cosines = dict(zip(found.keys, found.similarities.tolist(), strict=True))
    hits = selection.select(
        lambda keys: {key: stored.stored[key] for key in keys}, request, scores, found.before, cosines=cosines
    )
    texts = [[hit.row.content, *([hit.side[1].content] if hit.side else ())] for hit in hits]
    return [frozenset().union(*matched(case, of_hit)) for of_hit in texts]
