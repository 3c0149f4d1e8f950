"""Reads of a recall: a small scope whole, the candidates of each search, their neighbours, and the rows of the hits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, LiteralString, NamedTuple, TypeAlias

from ..model import Hit, Metadata, Scope, Vector
from ..text.theme_names import RESERVED_PATTERN
from .connection.database import Connection, half, tuples
from .connection.distributed import by_theme, form_of, is_distributed
from .packed_columns import bits_at, columns, raise_to_pieces
from .queries import QUERIES, TAGGED, Kind, for_words, index_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The theme and the id of a row.
Key: TypeAlias = tuple[str, int]
# How to find the nearest rows of a scope: compare all, take those among the nearest of the whole table that the graph
# index finds, or let the graph index go on until it has found enough of the scope.
Way: TypeAlias = Literal["exact", "of_all", "of_scope"]

# Of a million rows, these hold the ten nearest of a scope of a sixth of them.
NEAREST_OF_ALL_ROWS = 1500
# On a cluster, a recall over all themes looks for words in so many of them.
THEMES_MAX = 100


@dataclass(frozen=True, slots=True)
class Size:
    """The rows of a scope, counted up to a bound, with those that have expired since the last upkeep.

    `own_index` is whether the scope is one theme that has a graph index of its own, `pieces` whether its themes have
    texts with pieces, each with a vector of its own. `cut` is whether it has more than THEMES_MAX themes on a cluster.
    `table_rows` is what `table_rows` returns, and 0 for a scope that is small in any table.
    """

    rows: int
    own_index: bool = False
    pieces: bool = False
    cut: bool = False
    table_rows: int = 0


class ScannedRows(NamedTuple):
    """All rows of a scope, in no order; each field has one place a row.

    `sessions` has a number for each session of each theme, `times` are seconds since 1970, `cosines` are those to the
    question, NaN for a row without a vector. `lengths` is how many different terms a row has, and `held` (rows × words)
    which of the `words` of the question.
    """

    keys: list[Key]
    ids: NDArray[np.int64]
    sessions: NDArray[np.int64]
    times: NDArray[np.float64]
    cosines: NDArray[np.float64]
    lengths: NDArray[np.int32]
    held: NDArray[np.bool_]
    words: list[str]


class WordCandidates(NamedTuple):
    """Rows that hold terms of a question; `keys`, `ids`, `lengths`, `held` and `words` as in ScannedRows.

    `total` is the number of rows of the scope, `expected` how many of them hold each term, 0 where that is not known.
    """

    keys: list[Key]
    ids: NDArray[np.int64]
    lengths: NDArray[np.int32]
    held: NDArray[np.bool_]
    words: list[str]
    total: float
    expected: NDArray[np.float64]


class RelatedRows(NamedTuple):
    """Some rows and their neighbours in the session, in no order; fields as in ScannedRows.

    `previous` is the id of the row before it in its session, or the row's own id if it is the first.
    """

    keys: list[Key]
    ids: NDArray[np.int64]
    sessions: NDArray[np.int64]
    times: NDArray[np.float64]
    cosines: NDArray[np.float64]
    lengths: NDArray[np.int32]
    previous: NDArray[np.int64]


class Row(NamedTuple):
    """A row that may become a hit; its times are in the zone of the server. `metadata` is None when it is empty."""

    theme: str
    id: int
    content: str
    metadata: Metadata | None
    at: datetime
    role: str
    session_id: str
    target: str
    tags: Sequence[str] | None = None
    expires_at: datetime | None = None


def parameters_of(scope: Scope) -> dict[str, Any]:
    """The named parameters that every statement about the rows of a scope takes."""
    return {
        "theme": None,
        "narrow": scope.narrow,
        "themes": None if scope.themes is None else _array(scope.themes),
        "own": scope.own,
        "reserved": scope.hidden or RESERVED_PATTERN,
        "sessions": _array(scope.sessions) if scope.sessions else None,
        "without_session": scope.without_session,
        "without_since": scope.without_since,
        "target": scope.target,
        "label": scope.label,
        "since": scope.since,
        "until": scope.until,
        "role": scope.role,
        **(_tag_parameters(scope) if scope.tags else {}),
    }


def _tag_parameters(scope: Scope) -> dict[str, Any]:
    tags = _array(scope.tags)
    # In the index of tags the theme of a row is one of them.
    themes = None if scope.themes is None else _array(f"@{theme}" for theme in scope.themes)
    return {
        "any_tags": None if scope.all_tags else tags, "all_tags": tags if scope.all_tags else None, "tag_themes": themes
    }  # fmt: skip


def _named(statement: str, scope: Scope) -> str:
    """The name of the form of a statement for this scope."""
    return statement + TAGGED if scope.tags else statement


def count(connection: Connection, kind: Kind, scope: Scope, limit: int) -> Size:
    """The size of a scope, counted up to `limit` rows."""
    own_index = index_name(kind, scope.themes[0]) if scope.themes and len(scope.themes) == 1 else None
    parameters = {**parameters_of(scope), "limit": limit, "own_index": own_index}
    row = connection.execute(QUERIES[_named(f"count_{kind}", scope)], parameters).fetchone() or {}
    return Size(row["rows"], row["own_index"], row["pieces"], len(_themes(connection, kind, scope)) > THEMES_MAX)


def table_rows(connection: Connection, kind: Kind) -> int:
    """About how many rows of a kind all themes have; 0 where the server has not counted them, as on a cluster."""
    row = connection.execute(QUERIES[f"table_rows_{kind}"]).fetchone()
    return int(row["rows"]) if row else 0


def scan(
    connection: Connection, kind: Kind, scope: Scope, words: Sequence[str], vector: Vector | None, limit: int
) -> ScannedRows:
    """All rows of a scope, or any `limit` of them when there are more.

    `words` are at most WORDS_MAX tokens of a question. Of those with the same term the first is kept, of those without
    a term none.
    """
    statement, parts = for_words(_named(f"scan_{kind}", scope), len(words)), _parts(connection, kind, scope)
    themes = _answers(connection, statement, parts, words=_array(words), vector=half(vector), limit=limit)
    keys, (ids, sessions, times, cosines, lengths, bits) = columns(themes, ("i8", "i8", "f8", "f8", "i4", "i8"))
    raise_to_pieces(cosines, ids, [(len(theme[1]) // 8, theme[-2]) for theme in themes])
    places = _with_own_term(themes[0][-1] or ()) if themes else []
    kept = [words[place] for place in places]
    return ScannedRows(keys, ids, sessions, times, cosines, lengths, bits_at(bits, places), kept)


def word_candidates(
    connection: Connection, kind: Kind, scope: Scope, words: Sequence[str], *, rows: int, candidates: int
) -> WordCandidates:
    """The rows of a large scope among which the best by these words are; `words` as for `scan`.

    `rows` is the size of the scope. About `candidates` rows are read; `memory_words` has which terms are common.
    """
    import numpy as np

    asked = {"words": _array(words), "rows": rows, "candidates": candidates}
    statement = for_words(_named(form_of(connection, f"word_candidates_{kind}"), scope), len(words))
    parts = [tuples(connection, statement, part | asked, binary=True) for part in _parts(connection, kind, scope)]
    themes = [theme for part in parts for theme in part]
    keys, (ids, lengths, bits) = columns(themes, ("i8", "i4", "i8"))
    # Each row of a part has what is known of the whole part.
    total = sum(part[0][4] for part in parts if part)
    places = _with_own_term(themes[0][5] if themes else ())
    known = np.array([sum(part[0][6][place] or 0.0 for part in parts if part) for place in places])
    kept = [words[place] for place in places]
    return WordCandidates(keys, ids, lengths, bits_at(bits, places), kept, total, known)


def nearest(
    connection: Connection, kind: Kind, scope: Scope, vector: Vector, limit: int, *, way: Way, pieces: bool = False
) -> dict[Key, float]:
    """The rows whose vectors are nearest to the question's, with their cosines.

    With `pieces` the cosine of a row is that of the nearest of its vectors.
    """
    found: dict[Key, float] = {}
    parameters = {**parameters_of(scope), "vector": half(vector), "limit": limit, "seen": NEAREST_OF_ALL_ROWS}
    if is_distributed(connection) and scope.themes and len(scope.themes) == 1:
        parameters["theme"] = scope.themes[0]
    of_rows = f"nearest_{kind}_{way}"
    of_pieces = f"nearest_pieces_{kind}_{'exact' if way == 'exact' else 'of_scope'}"
    for name in (of_rows, of_pieces) if pieces else (of_rows,):
        for theme, number, cosine in tuples(connection, QUERIES[_named(name, scope)], parameters):
            # A vector of zeros, which this program never stores, has no cosine.
            if cosine is not None and not math.isnan(cosine):
                found[theme, number] = max(cosine, found.get((theme, number), -1.0))
    return dict(sorted(found.items(), key=lambda item: -item[1])[:limit]) if pieces else found


def related(connection: Connection, kind: Kind, vector: Vector | None, keys: Sequence[Key]) -> RelatedRows:
    """These rows and, for turns, those before and after each of them in its session."""
    parts = _by_key(connection, keys) if keys else ()
    themes = _answers(connection, QUERIES[f"relate_{kind}"], parts, vector=half(vector))
    found, (ids, sessions, times, cosines, lengths, previous) = columns(themes, ("i8", "i8", "f8", "f8", "i4", "i8"))
    return RelatedRows(found, ids, sessions, times, cosines, lengths, previous)


def fetch(connection: Connection, kind: Kind, keys: Sequence[Key]) -> dict[Key, Row]:
    """The rows themselves, those that are gone left out."""
    rows = _answers(connection, QUERIES[f"fetch_{kind}"], _by_key(connection, keys))
    return {row[:2]: Row(*row) for row in rows}


def around(connection: Connection, keys: Sequence[Key], turns: int) -> dict[Key, tuple[Hit, ...]]:
    """Up to `turns` turns before and after each of these turns in its session, in their order."""
    found: dict[Key, list[Hit]] = {}
    parts = [connection.execute(QUERIES["around_turns"], {**p, "turns": turns}) for p in _by_key(connection, keys)]
    for row in chain.from_iterable(parts):
        neighbour = Hit(
            id=row["id"], theme=row["agent_identity"], content=row["content"], at=row["at"], role=row["role"],
            session_id=row["session_id"], metadata=row["metadata"] or {},
        )  # fmt: skip
        found.setdefault((row["agent_identity"], row["hit"]), []).append(neighbour)
    return {key: tuple(neighbours) for key, neighbours in found.items()}


def _with_own_term(terms: Sequence[str]) -> list[int]:
    """The places of the words that have a term which none before them has."""
    first = {term: place for place, term in reversed([*enumerate(terms)]) if term}
    return sorted(first.values())


def _array(values: Iterable[str] | Iterable[int]) -> str:
    """A list as a parameter, to be cast to `text[]` or `bigint[]`; the driver takes longer to write one."""
    return "{" + ",".join(['"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values]) + "}"


def _answers(
    connection: Connection, statement: LiteralString, parts: Iterable[Mapping[str, Any]], **asked: Any
) -> list[tuple[Any, ...]]:
    """The rows of a statement for each of these sets of parameters."""
    return [row for part in parts for row in tuples(connection, statement, {**part, **asked}, binary=True)]


def _by_key(connection: Connection, keys: Sequence[Key]) -> Iterator[dict[str, Any]]:
    for part in by_theme(connection, {"themes": [theme for theme, _ in keys], "ids": [number for _, number in keys]}):
        yield {**part, "themes": _array(part["themes"]), "ids": _array(part["ids"])}


def _parts(connection: Connection, kind: Kind, scope: Scope) -> Iterator[dict[str, Any]]:
    """The parameters of a statement about the rows of a scope: one set, or on a cluster one for each theme."""
    if not is_distributed(connection):
        yield parameters_of(scope)
        return
    for theme in scope.themes or _themes(connection, kind, scope)[:THEMES_MAX]:
        yield {**parameters_of(replace(scope, own=theme, themes=(theme,))), "theme": theme}


def _themes(connection: Connection, kind: Kind, scope: Scope) -> list[str]:
    """On a cluster, the largest themes of a scope of all themes: one more than are searched for words."""
    if scope.themes is not None or not is_distributed(connection):
        return []
    parameters = {**parameters_of(scope), "limit": THEMES_MAX + 1}
    return [theme for (theme,) in tuples(connection, QUERIES[f"themes_of_{kind}"], parameters)]
