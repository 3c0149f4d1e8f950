"""Reading: the two legs of a recall, the relations of their candidates, and the rows of the hits."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal, LiteralString, NamedTuple, TypeAlias

from .. import lexical
from ..model import Hit, Scope, Vector
from ..themes import RESERVED_PATTERN
from .postgres import Connection, tuples
from .queries import QUERIES
from .rows import half

Kind: TypeAlias = Literal["turns", "entries"]
Key: TypeAlias = tuple[str, int]

TABLES: dict[Kind, LiteralString] = {"turns": "conversations", "entries": "memory_entries"}

# BM25 as measured best on conversations: short documents want little length normalisation.
BM25_K1, BM25_B = 0.9, 0.4
READ_ROWS_MAX = 200
SAMPLED_ROWS = 2000


@dataclass(frozen=True, slots=True)
class Where:
    """The rows one recall may see, as parameters of the statements."""

    kind: Kind
    scope: Scope
    target: str = ""

    @property
    def parameters(self) -> dict[str, Any]:
        """Named parameters that every statement about these rows takes."""
        themes = list(self.scope.themes) if self.scope.themes is not None else None
        return {
            "themes": themes,
            "own": self.scope.own,
            "reserved": self.scope.hidden or RESERVED_PATTERN,
            "session": self.scope.session_id,
            "without_session": self.scope.without_session,
            "target": self.target,
            "since": self.scope.since,
            "until": self.scope.until,
            "role": self.scope.role,
        }


class Relation(NamedTuple):
    """A candidate or a neighbour of one: its similarity to the question, and who stands before it in its session."""

    key: Key
    similarity: float | None
    previous: Key | None


@dataclass(frozen=True, slots=True)
class Size:
    """The rows of a scope, counted up to a bound.

    `own_index` tells whether it is one theme that has a graph index of its own, `pieces` whether its themes have texts
    that are so long that they are matched by pieces.
    """

    rows: int
    own_index: bool = False
    pieces: bool = False


def count(connection: Connection, where: Where, limit: int) -> Size:
    """The size of a scope, counted up to `limit` rows."""
    themes = where.scope.themes or ()
    own_index = index_name(where.kind, themes[0]) if len(themes) == 1 else None
    parameters = {**where.parameters, "limit": limit, "own_index": own_index}
    row = connection.execute(QUERIES[f"count_{where.kind}"], parameters).fetchone() or {}
    return Size(row["rows"], row["own_index"], row["pieces"])


def index_name(kind: Kind, theme: str) -> str:
    """The name of the graph index that a theme may have of its own."""
    return f"{TABLES[kind]}_meaning_{hashlib.sha256(theme.encode()).hexdigest()[:16]}"


def near(
    connection: Connection, where: Where, vector: Vector, limit: int, *, exact: bool, pieces: bool = False
) -> dict[Key, float]:
    """The rows nearest in meaning, with their cosine similarity; by comparing all, or by the graph index.

    With `pieces` a long text is as near as the nearest of its parts.
    """
    found: dict[Key, float] = {}
    parameters = {**where.parameters, "vector": half(vector), "limit": limit}
    plan = f"{where.kind}_{'exact' if exact else 'indexed'}"
    for name in (f"near_{plan}", f"near_pieces_{plan}") if pieces else (f"near_{plan}",):
        for theme, number, cosine in tuples(connection, QUERIES[name], parameters):
            score = _number(cosine)
            if score is not None:
                key = theme, number
                found[key] = max(score, found.get(key, -1.0))
    return dict(sorted(found.items(), key=lambda item: -item[1])[:limit]) if pieces else found


def sample(connection: Connection, where: Where, rows: int, questions: int) -> list[Vector]:
    """Questions made of stored vectors, at random; of a table of about `rows` rows some pages are read."""
    percent = min(100.0, 100 * SAMPLED_ROWS / max(1, rows))
    parameters = {**where.parameters, "percent": percent, "questions": questions}
    return [row["question"] for row in connection.execute(QUERIES[f"sample_{where.kind}"], parameters)]


def worded(
    connection: Connection, where: Where, query: str, limit: int, *, rows: int, candidates: int
) -> dict[Key, dict[str, float]]:
    """The rows that hold words of the query, with what each of these adds to their score, the best row first.

    The words are the query's own, folded and in parts as `lexical` has them. `rows` is the size of the scope.
    Up to `candidates` rows are read whole and counted; of more, the common words come from `memory_words`.
    """
    words = lexical.query(query)
    if not words:
        return {}
    parameters = {
        "words": words, "limit": limit, "rows": rows, "candidates": candidates, "read": READ_ROWS_MAX,
        "k1": BM25_K1, "b": BM25_B,
    }  # fmt: skip
    name = f"words_{where.kind}_{'whole' if rows <= candidates else 'few'}"
    tokens = words.split()
    shown: dict[str, str] = {}
    found: dict[Key, dict[str, float]] = {}
    for theme, number, lexemes, worths in tuples(connection, QUERIES[name], {**where.parameters, **parameters}):
        worth = found[theme, number] = {}
        for lexeme, of_word in zip(lexemes, worths, strict=True):
            word = shown.get(lexeme) or shown.setdefault(lexeme, _unstemmed(lexeme, tokens))
            worth[word] = worth.get(word, 0.0) + of_word
    return found


def _unstemmed(lexeme: str, tokens: Sequence[str]) -> str:
    """The query's word that a stem was made of: the one with which it shares the longest beginning."""
    shared = {token: _shared(lexeme, token) for token in tokens}
    word = max(shared, key=lambda token: (shared[token], -len(token)), default=lexeme)
    return word if 2 * shared.get(word, 0) >= len(lexeme) else lexeme


def _shared(left: str, right: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


def relate(connection: Connection, kind: Kind, keys: Sequence[Key], vector: Vector | None) -> list[Relation]:
    """The candidates and, for turns, their neighbours in the session."""
    found = tuples(connection, QUERIES[f"relate_{kind}"], {**_columns(keys), "vector": half(vector)})
    return [
        Relation((theme, number), _number(similarity), (theme, previous) if previous is not None else None)
        for theme, number, similarity, previous in found
    ]


def fetch(connection: Connection, kind: Kind, keys: Sequence[Key]) -> dict[Key, Hit]:
    """The rows themselves, as hits without scores."""
    cursor = connection.execute(QUERIES[f"fetch_{kind}"], _columns(keys))
    return {
        (row["agent_identity"], row["id"]): Hit(
            id=row["id"], theme=row["agent_identity"], content=row["content"], at=row["at"], score=0.0,
            target=row["target"], role=row["role"], session_id=row["session_id"], metadata=row["metadata"],
        )
        for row in cursor
    }  # fmt: skip


def around(connection: Connection, keys: Sequence[Key], turns: int) -> dict[Key, tuple[Hit, ...]]:
    """Up to so many turns before and after each of these turns in its session, in their order."""
    found: dict[Key, list[Hit]] = {}
    for row in connection.execute(QUERIES["around_turns"], {**_columns(keys), "turns": turns}):
        neighbour = Hit(
            id=row["id"], theme=row["agent_identity"], content=row["content"], at=row["at"], score=0.0,
            role=row["role"], session_id=row["session_id"],
        )  # fmt: skip
        found.setdefault((row["agent_identity"], row["hit"]), []).append(neighbour)
    return {key: tuple(neighbours) for key, neighbours in found.items()}


def _number(similarity: float | None) -> float | None:
    """None for the cosine of a row of zeros, which somebody else put in."""
    return None if similarity is None or math.isnan(similarity) else similarity


def _columns(keys: Sequence[Key]) -> dict[str, list[Any]]:
    return {"themes": [theme for theme, _ in keys], "ids": [number for _, number in keys]}
