"""Sessions of fifty turns: what ambient recall puts into their context, with repeated memories and without.

The end of each conversation is a session of a host that keeps its record, the rest was stored before. Questions stand
between the messages of the session.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import SecretStr

from hermes_memory_pgvector import runtime
from hermes_memory_pgvector.recall import render
from hermes_memory_pgvector.recall.shown import memories_in
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.text.alike import comparable
from hermes_memory_pgvector.text.cleaning import clean

from .cases import Case, Question
from .environment import Endpoint

TURNS = 50
QUESTIONS_MAX = 25
# A token of English, by the models' own tables, is about four characters.
TOKEN_CHARS = 4
READY_S_MAX = 60.0
SESSION = "20260101_000000_live01"
_RECORD = """
    create table sessions (id text primary key, system_prompt text);
    create table messages (id integer primary key, session_id text, role text, content text, api_content text,
      tool_calls text, timestamp real, active integer default 1, compacted integer default 0);
    create index messages_active on messages (session_id, active, timestamp)"""


@dataclass(frozen=True)
class Live:
    """A stored conversation and the session after it: messages with their answers, and questions in between."""

    case: Case
    turns: tuple[tuple[str, str, Question | None], ...]


@dataclass
class Figures:
    """Of all sessions: characters in blocks, once and as often as the host sends them, memories, known evidence."""

    chars: int = 0
    chars_sent: int = 0
    memories: int = 0
    repeated: int = 0
    known: set[tuple[str, int, str]] = field(default_factory=set)


def live(case: Case) -> Live:
    """The case without its last turns and with the session that they make together with its questions."""
    turns = list(case.turns())
    stored = dict[str, dict[str, str]]()
    texts = [(session, name, text) for session, texts in case.sessions for name, text in texts.items()]
    said = turns[-(TURNS - QUESTIONS_MAX) :]
    last = {text for _, *sides in said for text in sides}
    for session, name, text in texts:
        if text not in last:
            stored.setdefault(session, {})[name] = text
    known = {name for texts in stored.values() for name in texts}
    questions = [question for question in case.questions if question.evidence <= known]
    step = max(1.0, len(questions) / QUESTIONS_MAX)
    asked = [questions[int(place * step)] for place in range(min(QUESTIONS_MAX, len(questions)))]
    session: list[tuple[str, str, Question | None]] = [(user, answer, None) for _, user, answer in said]
    for place, question in enumerate(asked):
        session.insert(2 * place + 1, (question.text, "I see.", question))
    return Live(replace(case, sessions=tuple(stored.items()), questions=()), tuple(session[:TURNS]))


def compared(lives: Sequence[Live], dsn: str, endpoint: Endpoint, folder: Path) -> dict[str, dict[str, float]]:
    """The figures of all sessions, a mean for each session, with repeated memories and without."""
    found = {most: _run(lives, dsn, endpoint, folder / str(most), most) for most in (0, 500)}
    asked = sum(question is not None for one in lives for *_, question in one.turns)
    wanted = sum(len(question.evidence) for one in lives for *_, question in one.turns if question)
    lost = found[0].known - found[500].known
    return {
        name: {
            "questions": asked,
            "tokens": figures.chars / TOKEN_CHARS / len(lives),
            "sent": figures.chars_sent / TOKEN_CHARS / len(lives),
            "memories": figures.memories / len(lives),
            "repeated": figures.repeated / len(lives),
            "evidence": len(figures.known) / wanted,
            "lost": len(lost) if most else 0,
        }
        for (most, figures), name in zip(found.items(), ("repeated", "once"), strict=True)
    }


def _run(lives: Sequence[Live], dsn: str, endpoint: Endpoint, home: Path, most: int) -> Figures:
    url = endpoint.url and f"{endpoint.url}/v1"
    settings = Settings(
        dsn=SecretStr(dsn), embed_url=url, embed_model=endpoint.model, prefetch_shown_max=most, bulk_sync_on_init=False
    )
    figures = Figures()
    for number, one in enumerate(lives):
        folder = home / str(number)
        folder.mkdir(parents=True)
        used = runtime.acquire(settings, folder)
        try:
            _wait_for_floor(used)
            with closing(sqlite3.connect(folder / "state.db")) as record:
                record.executescript(_RECORD)
                _talk(one, used, record, figures)
        finally:
            runtime.release(used)
    return figures


def _wait_for_floor(used: runtime.Runtime) -> None:
    """Wait until it is known which texts are unrelated: until then, all memories are shown."""
    deadline = time.monotonic() + READY_S_MAX
    used.wait_ready(READY_S_MAX)
    while used.compatibility.floor is None:
        if time.monotonic() > deadline:
            raise SystemExit(f"the embedder was not calibrated within {READY_S_MAX:g} s")
        time.sleep(0.1)


def _talk(one: Live, used: runtime.Runtime, record: sqlite3.Connection, figures: Figures) -> None:
    settings, context = used.settings, set[str]()
    texts = {name: comparable(text) for _, texts in one.case.sessions for name, text in texts.items()}
    for place, (user, answer, question) in enumerate(one.turns):
        recall = used.prefetch.before_turn(one.case.theme, clean(user), SESSION)
        if recall.degraded:
            raise SystemExit(f"the memory did not answer completely: {recall.degraded}")
        block = render.block(recall, chars_max=settings.prefetch_chars_max, query=user)
        sent = f"{user}\n\n<memory-context>\n{block}\n</memory-context>" if block else None
        shown = [comparable(text.strip("…")) for text in memories_in(sent or "")]
        figures.chars += len(block)
        figures.chars_sent += len(block) * (len(one.turns) - place)
        figures.memories += len(shown)
        figures.repeated += sum(text in context for text in shown)
        context.update(shown)
        for name in question.evidence if question else ():
            if any(text in texts[name] for text in context):
                figures.known.add((one.case.theme, place, name))
        record.executemany(
            "insert into messages (session_id, role, content, api_content, timestamp) values (?, ?, ?, ?, ?)",
            [(SESSION, "user", user, sent, time.time()), (SESSION, "assistant", answer, None, time.time())],
        )
        record.commit()


def lives_of(cases: Sequence[Case]) -> Iterator[Live]:
    """The sessions of conversations that are long enough."""
    for case in cases:
        one = live(case)
        if len(one.turns) == TURNS or len(case.sessions) > 1:
            yield one
