"""Reading: a small scope whole or the two legs of a recall, the relations of candidates, and the rows of the hits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from itertools import zip_longest
from typing import Any, Literal, LiteralString, TypeAlias

from ..model import Hit, Row, Scope, Vector
from ..recall.fusion import Line
from ..recall.scan import BM25_B, BM25_K1, IDF_POWER, Key, Scan, related, scanned
from ..text.theme_names import RESERVED_PATTERN
from .connection.database import Connection, half, tuples
from .queries import PLAIN, QUERIES, WIDTHS, Kind
from .theme_index import index_name

# By comparing all; among those of any scope that a graph index finds first; by a graph index among the scope's own.
Way: TypeAlias = Literal["exact", "seen", "indexed"]

# So many rows of any scope are looked at that the ten nearest of one which is a sixth of a million rows are among them.
SEEN_ROWS = 1500


@dataclass(frozen=True, slots=True)
class Where:
    """The rows one recall may see, as statements and their parameters."""

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
            "without_since": self.scope.without_since,
            "target": self.target,
            "since": self.scope.since,
            "until": self.scope.until,
            "role": self.scope.role,
        }

    @property
    def plain(self) -> bool:
        """Whether these are all rows of some themes."""
        scope = self.scope
        of_kind = (self.target,) if self.kind == "entries" else (scope.session_id, scope.without_session, scope.role)
        return scope.themes is not None and not any((scope.since, scope.until, *of_kind))

    def statement(self, name: str) -> LiteralString:
        """The statement of this name for these rows, without conditions that hold for all of them."""
        return (PLAIN if self.plain else QUERIES)[name]


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
    row = connection.execute(where.statement(f"count_{where.kind}"), parameters).fetchone() or {}
    return Size(row["rows"], row["own_index"], row["pieces"])


def lexemes(connection: Connection, words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The terms that Postgres makes of each of these words, which are a question's as `lexical` has them."""
    found = tuples(connection, QUERIES["lexemes"], {"words": words}, binary=True)
    return {word: tuple(of_word) for word, of_word in found}


def scan(
    connection: Connection, where: Where, terms: Mapping[str, str], vector: Vector | None, rows_max: int
) -> Scan | None:
    """All rows of a scope as the question sees them; None when there are more than `rows_max`.

    `terms` are those of the question, each with the word that it comes from.
    """
    name, asked, words = _asked("scan", where, terms)
    parameters = {**asked, "vector": half(vector), "most": rows_max + 1}
    found = scanned(tuples(connection, where.statement(name), parameters, binary=True), words)
    return found if len(found.keys) <= rows_max else None


def _asked(statement: LiteralString, where: Where, terms: Mapping[str, str]) -> tuple[str, dict[str, Any], list[str]]:
    """The statement that has room for so many terms, its parameters, and the word that each term comes from.

    Of more terms than there is room for, the first count.
    """
    width = next((width for width in WIDTHS if len(terms) <= width), WIDTHS[-1])
    lexemes = list(terms)[:width]
    quoted = list(map(_quoted, lexemes))
    # Postgres leaves out what is asked of a term that is null.
    each = {f"term_{n}": term for n, term in zip_longest(range(width), quoted)}
    asked = {**where.parameters, "lexemes": lexemes, "terms": quoted, **each}
    return f"{statement}_{where.kind}_{width}", asked, [terms[lexeme] for lexeme in lexemes]


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
        for theme, number, cosine in tuples(connection, where.statement(name), parameters):
            score = _number(cosine)
            if score is not None:
                key = theme, number
                found[key] = max(score, found.get(key, -1.0))
    return dict(sorted(found.items(), key=lambda item: -item[1])[:limit]) if pieces else found


def worded(
    connection: Connection,
    where: Where,
    terms: Mapping[str, str],
    limit: int,
    *,
    rows: int,
    candidates: int,
) -> dict[Key, dict[str, float]]:
    """The best rows of a large scope that hold words of the query, with what each adds to their score, best first.

    `terms` are those of the question, each with the word that it comes from. `rows` is the size of the scope. About
    `candidates` rows are read; which words are common is told by `memory_words`.
    """
    if not terms:
        return {}
    name, asked, words = _asked("words", where, terms)
    parameters = {**asked, "limit": limit, "rows": rows, "candidates": candidates}
    parameters |= {"k1": BM25_K1, "b": BM25_B, "idf_power": IDF_POWER}
    found: dict[Key, dict[str, float]] = {}
    for theme, number, held, worths in tuples(connection, where.statement(name), parameters):
        worth = found[theme, number] = {}
        for n, of_term in zip(held, worths, strict=True):
            worth[words[n - 1]] = worth.get(words[n - 1], 0.0) + of_term
    return found


def relate(
    connection: Connection,
    kind: Kind,
    vector: Vector | None,
    near: Mapping[Key, float],
    words: Mapping[Key, Mapping[str, float]],
) -> Line[Key]:
    """What the legs found and, for turns, the neighbours in the session."""
    keys = list(dict.fromkeys([*near, *words]))
    parameters = {**_columns(keys), "vector": half(vector)}
    themes = tuples(connection, QUERIES[f"relate_{kind}"], parameters, binary=True) if keys else []
    return related(themes, near, words)


def fetch(connection: Connection, kind: Kind, keys: Sequence[Key]) -> dict[Key, Row]:
    """The rows themselves, their times in UTC wherever the server is."""
    found = tuples(connection, QUERIES[f"fetch_{kind}"], _columns(keys), binary=True)
    return {(row.theme, row.id): row._replace(at=row.at.astimezone(UTC)) for row in map(Row._make, found)}


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
