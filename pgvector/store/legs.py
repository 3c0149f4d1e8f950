"""Reading: a small scope whole or the two legs of a recall, the relations of candidates, and the rows of the hits."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import itemgetter
from typing import Any, Literal, LiteralString, TypeAlias

from .. import lexical
from ..model import Hit, Scope, Vector
from ..scan import BM25_B, BM25_K1, Key, Relation, Scan
from ..themes import RESERVED_PATTERN
from .postgres import Connection, tuples
from .queries import BITS, QUERIES, WIDTHS
from .rows import half

Kind: TypeAlias = Literal["turns", "entries"]
# By comparing all; among those of any scope that a graph index finds first; by a graph index among the scope's own.
Way: TypeAlias = Literal["exact", "seen", "indexed"]

TABLES: dict[Kind, LiteralString] = {"turns": "conversations", "entries": "memory_entries"}

SAMPLED_ROWS = 2000
# So many rows of any scope are looked at that the ten nearest of one which is a sixth of a million rows are among them.
SEEN_ROWS = 1500


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


def lexemes(connection: Connection, query: str) -> tuple[str, ...]:
    """The terms of a question: what Postgres makes of the words that `lexical` has of it."""
    row = connection.execute(QUERIES["lexemes"], {"words": lexical.query(query)}).fetchone()
    return tuple(row["lexemes"]) if row else ()


def scan(
    connection: Connection, where: Where, query: str, terms: Sequence[str], vector: Vector | None, rows_max: int
) -> Scan | None:
    """All rows of a scope as the question sees them; None when there are more than `rows_max`."""
    name, asked, words = _asked("scan", where, query, terms)
    parameters = {**asked, "vector": half(vector), "most": rows_max + 1}
    found = tuples(connection, QUERIES[name], parameters, binary=True)
    if len(found) > rows_max:
        return None
    # The rows of a session one behind the other.
    found.sort(key=itemgetter(0, 1, 2, 3))
    themes, sessions, _, ids, cosines, lengths, held, beyond = zip(*found, strict=True) if found else ((),) * 8
    if any(beyond):
        held = tuple(low | high << BITS for low, high in zip(held, beyond, strict=True))
    lines = list(zip(themes, sessions, strict=True))
    return Scan(list(zip(themes, ids, strict=True)), lines, cosines, lengths, held, words)


def _asked(
    statement: LiteralString, where: Where, query: str, terms: Sequence[str]
) -> tuple[str, dict[str, Any], list[str]]:
    """The statement that has room for so many terms, its parameters, and the word that each term comes from.

    Of more terms than there is room for, the first count.
    """
    width = next((width for width in WIDTHS if len(terms) <= width), WIDTHS[-1])
    tokens = lexical.query(query).split()
    asked = {**where.parameters, "lexemes": list(terms[:width]), "terms": [_quoted(term) for term in terms[:width]]}
    return f"{statement}_{where.kind}_{width}", asked, [_unstemmed(term, tokens) for term in terms[:width]]


def _quoted(term: str) -> str:
    """A term as a tsquery."""
    return "'" + term.replace("\\", "\\\\").replace("'", "''") + "'"


def near(
    connection: Connection, where: Where, vector: Vector, limit: int, *, way: Way, pieces: bool = False
) -> dict[Key, float]:
    """The rows nearest in meaning, with their cosine similarity.

    With `pieces` a long text is as near as the nearest of its parts.
    """
    found: dict[Key, float] = {}
    parameters = {**where.parameters, "vector": half(vector), "limit": limit, "seen": SEEN_ROWS}
    rows = f"near_{where.kind}_{way}"
    parts = f"near_pieces_{where.kind}_{'exact' if way == 'exact' else 'indexed'}"
    for name in (rows, parts) if pieces else (rows,):
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
    connection: Connection,
    where: Where,
    query: str,
    terms: Sequence[str],
    limit: int,
    *,
    rows: int,
    candidates: int,
) -> dict[Key, dict[str, float]]:
    """The best rows of a large scope that hold words of the query, with what each adds to their score, best first.

    `terms` are those of the query, the words are its own, folded and in parts as `lexical` has them. `rows` is the size
    of the scope. About `candidates` rows are read; which words are common is told by `memory_words`.
    """
    if not terms:
        return {}
    name, asked, words = _asked("words", where, query, terms)
    parameters = {**asked, "limit": limit, "rows": rows, "candidates": candidates, "k1": BM25_K1, "b": BM25_B}
    found: dict[Key, dict[str, float]] = {}
    for theme, number, held, worths in tuples(connection, QUERIES[name], parameters):
        worth = found[theme, number] = {}
        for n, of_term in zip(held, worths, strict=True):
            worth[words[n - 1]] = worth.get(words[n - 1], 0.0) + of_term
    return found


def _unstemmed(lexeme: str, tokens: Sequence[str]) -> str:
    """The query's word that a stem was made of: the one with which it shares the longest beginning."""
    shared = {token: _shared(lexeme, token) for token in tokens}
    word = max(shared, key=lambda token: (shared[token], -len(token)), default=lexeme)
    return word if 2 * shared.get(word, 0) >= len(lexeme) else lexeme


def _shared(left: str, right: str) -> int:
    if left[:1] != right[:1]:
        return 0
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
    found = tuples(connection, QUERIES[f"fetch_{kind}"], _columns(keys), binary=True)
    return {
        (theme, number): Hit(
            id=number, theme=theme, content=content, at=at, score=0.0, target=target, role=role,
            session_id=session, metadata=metadata,
        )
        for theme, number, content, metadata, at, role, session, target in found
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
