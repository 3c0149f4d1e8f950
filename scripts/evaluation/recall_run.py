"""Stores recall sets in one memory by the events of the hooks, and asks the tools of the agent, in this process."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
from pydantic import SecretStr

from hermes_memory_pgvector import model, runtime
from hermes_memory_pgvector.model import WORDS_ONLY, Add, Caller, Event, TurnTaken
from hermes_memory_pgvector.recall import recaller
from hermes_memory_pgvector.runtime import Runtime
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.text import tokenizer
from hermes_memory_pgvector.text.cleaning import clean
from hermes_memory_pgvector.tools import toolset

from .environment import NO_ENDPOINT, Endpoint
from .recall_sets import Question, RecallSets, Row

SESSION = "20260101_000000_asking"
LIMIT = 10
# Longer than the defaults: what is measured is what is found, on a machine that may be busy.
RECALL_S, PREFETCH_S = 30.0, 7.0
STORE_S_MAX, READY_S_MAX = 7200.0, 120.0
ATTEMPTS = 5
# One row of a table: its kind, its id.
Place = tuple[str, int]


@dataclass(frozen=True)
class Asked:
    """What a question found: the ids of the hits' rows, best first, and the length of the answer in bytes of UTF-8.

    `shown` are the rows that are put before a turn; None when that was not asked.
    """

    question: Question
    found: tuple[str, ...]
    answer_bytes: int
    shown: tuple[str, ...] | None = None


def run(sets: RecallSets, dsn: str, endpoint: Endpoint, home: Path) -> dict[str, list[Asked]]:
    """The answers to all questions: by everything, by words alone and by vectors alone, and before a turn."""
    settings = Settings(
        dsn=SecretStr(dsn), embed_url=endpoint.url and f"{endpoint.url}/v1", embed_model=endpoint.model,
        recall_budget_s=RECALL_S, prefetch_budget_s=PREFETCH_S, bulk_sync_on_init=False,
    )  # fmt: skip
    used = runtime.acquire(settings, home)
    try:
        used.wait_ready(READY_S_MAX)
        with_vectors = endpoint.url != NO_ENDPOINT
        stored = _stored(used, sets.rows, dsn, with_vectors=with_vectors)
        if not with_vectors:
            return {"words": _answers(used, sets.questions, stored, complete=False)}
        _wait_for_floor(used)
        found = {"whole": _answers(used, sets.questions, stored, complete=True, ambient=True)}
        with _words_only(used):
            found["words"] = _answers(used, sets.questions, stored, complete=False)
        with patch.object(tokenizer, "query", lambda *_: []):
            found["vectors"] = _answers(used, sets.questions, stored, complete=True)
        return found
    finally:
        runtime.release(used)


def event(row: Row) -> Event:
    """The event that a hook makes of a row, at the time of the row. Its metadata name the row."""
    common: dict[str, Any] = {
        "theme": row.theme, "home": "eval", "session_id": row.session, "at": row.at, "metadata": {"row": row.id},
    }  # fmt: skip
    if row.kind == "entry":
        return Add(target=row.target, content=row.text, **common)
    return TurnTaken(user=row.user, assistant=row.assistant, **common)


def of_peer(sets: RecallSets, answers: Sequence[Sequence[Mapping[str, Any]]]) -> list[Asked]:
    """The answers of a memory that does not know our rows' ids: the texts of its hits, by question and tool."""
    ids = sets.ids()
    return [
        Asked(
            question,
            tuple(merged([[ids.get(text, "") for hit in one["contents"] for text in hit] for one in of_tools])),
            sum(one["bytes"] for one in of_tools),
        )
        for question, of_tools in zip(sets.questions, answers, strict=True)
    ]  # fmt: skip


def as_json(asked: Asked) -> dict[str, Any]:
    """One question with the ids of its answers and of its hits."""
    question = asked.question
    return {
        "id": question.id, "question": question.text, "answers": sorted(question.answers),
        "found": asked.found, "shown": asked.shown,
    }  # fmt: skip


def _stored(used: Runtime, rows: Sequence[Row], dsn: str, *, with_vectors: bool) -> dict[Place, str]:
    """Store the rows, wait for their vectors, and return the id of the row for each place in the database."""
    for row in rows:
        if not used.accept(event(row)):
            sys.exit(f"the outbox refused the row {row.id}")
    wanted = sum(1 if row.kind == "entry" else bool(row.user) + bool(row.assistant) for row in rows)
    read = (
        "select 'recall_memory', id, metadata->>'row', embedding is not null from memory_entries union all "
        "select 'recall_conversation', id, metadata->>'row', embedding is not null from conversations"
    )
    until = time.monotonic() + STORE_S_MAX
    with psycopg.connect(dsn, autocommit=True) as connection:
        while time.monotonic() < until:
            found = connection.execute(read).fetchall()
            ready = sum(has_vector or not with_vectors for *_, has_vector in found)
            if ready == wanted:
                return {(tool, number): row for tool, number, row, _ in found}
            time.sleep(0.5)
    sys.exit(f"of {wanted} rows {len(found)} were stored, {ready} of them completely, within {STORE_S_MAX:g} s")


def _wait_for_floor(used: Runtime) -> None:
    until = time.monotonic() + READY_S_MAX
    while used.compatibility.floor is None:
        if time.monotonic() > until:
            sys.exit(f"the embedder was not calibrated within {READY_S_MAX:g} s")
        time.sleep(0.1)


def _answers(
    used: Runtime, questions: Sequence[Question], stored: Mapping[Place, str], *, complete: bool, ambient: bool = False
) -> list[Asked]:
    asked = []
    for question in questions:
        with _clock_at(question.now):
            answers = [_call(used, tool, question, complete=complete) for tool in question.tools]
            shown = _before_turn(used, question, stored) if ambient else None
        ranks = [
            [stored[tool, hit["id"]] for hit in answer["hits"]]
            for tool, answer in zip(question.tools, answers, strict=True)
        ]
        size = sum(len(json.dumps(answer, ensure_ascii=False).encode()) for answer in answers)
        asked.append(Asked(question, tuple(merged(ranks)), size, shown))
    return asked


def merged(ranks: Sequence[Sequence[str]]) -> list[str]:
    """The hits of several tools in the order in which an agent that reads both finds them: the first of each, …"""
    longest = max(map(len, ranks), default=0)
    return [hits[place] for place in range(longest) for hits in ranks if place < len(hits)]


def _call(used: Runtime, tool: str, question: Question, *, complete: bool) -> dict[str, Any]:
    caller = Caller(theme=question.theme, session_id=SESSION)

    def ask() -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(toolset.call(used, tool, {"query": question.text, "limit": LIMIT}, caller))
        return answer

    return _complete(ask, lambda answer: _missing(answer.get("error"), answer.get("degraded"), complete=complete))


def _before_turn(used: Runtime, question: Question, stored: Mapping[Place, str]) -> tuple[str, ...]:
    recall = _complete(
        lambda: used.prefetch.before_turn(question.theme, clean(question.text), SESSION),
        lambda recall: _missing(None, recall.degraded, complete=True),
    )
    tools = [("recall_memory" if hit.target else "recall_conversation", hit.id) for hit in recall.hits]
    return tuple(stored[place] for place in tools)


def _missing(error: str | None, degraded: Sequence[str] | None, *, complete: bool) -> str:
    """Why an answer is not what is measured; empty when it is."""
    reasons = [reason for reason in degraded or () if complete or not reason.startswith(WORDS_ONLY)]
    return error or "; ".join(reasons)


def _complete(ask: Callable[[], Any], problem: Callable[[Any], str]) -> Any:
    """The answer, asked again while it is not complete."""
    for _ in range(ATTEMPTS):
        answer = ask()
        if not (reason := problem(answer)):
            return answer
    sys.exit(f"the memory did not answer completely: {reason}")


@contextmanager
def _words_only(used: Runtime) -> Iterator[None]:
    with patch.object(used._recaller, "_embedder", lambda: WORDS_ONLY):
        yield


@contextmanager
def _clock_at(moment: datetime) -> Iterator[None]:
    """The clock of the package stands at `moment`: `model.now`, and that by which a recall reads periods."""

    class Standing(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return moment.astimezone(tz) if tz else moment.astimezone().replace(tzinfo=None)

    clock, holders = model.now, [m for name, m in sys.modules.items() if name.startswith(model.__package__ or "")]
    with ExitStack() as changed:
        changed.enter_context(patch.object(recaller, "datetime", Standing))
        for module in holders:
            if getattr(module, "now", None) is clock:
                changed.enter_context(patch.object(module, "now", lambda: moment))
        yield
