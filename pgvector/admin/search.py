"""search: ask the memory what an agent would ask, and see why it answers so."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.text import Text

from ..errors import BadArgument, DatabaseUnavailable
from ..model import Hit, Recall, RecallRequest, Target
from ..runtime import Runtime, acquire, release
from ..session.themes import aliased, allowed
from ..settings import Settings, load
from ..store.connection.database import Database
from ..store.queries import Kind
from ..text import times
from ..text.sanitize import safe_line
from ..text.theme_names import DEFAULT_THEME, normalise
from .console import Console, counted, local, rows_table
from .migration import start_server

READY_S_MAX = 60.0
BUDGET_S_MIN = 10.0
TEXT_CHARS_MAX = 400
BESIDE_CHARS_MAX = 200
_KINDS: dict[str, tuple[Kind, ...]] = {"memory": ("entries",), "turns": ("turns",), "both": ("entries", "turns")}
_TITLES = {"entries": "Memory", "turns": "Turns"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What an operator asks. Empty texts are not given: then `theme` and `scope` are the defaults."""

    query: str
    top_k: int
    theme: str
    scope: str
    session: str
    kind: str
    target: Target | None
    role: str
    since: datetime | None
    until: datetime | None
    context: int

    def check(self, settings: Settings) -> None:
        """Raise BadArgument when it cannot be answered."""
        if not 1 <= self.top_k <= settings.recall_limit_max:
            raise BadArgument(f"--top-k is {self.top_k}; it must be from 1 to {settings.recall_limit_max}")
        if not self.query.strip():
            raise BadArgument("the query is empty; say what to look for")
        if self.target and self.role:
            raise BadArgument("--target asks for entries and --role for turns; give one of them")
        if self.target and self.kind == "turns":
            raise BadArgument("--target asks for entries, not for --kind turns")
        if self.role and self.kind == "memory":
            raise BadArgument("--role asks for turns, not for --kind memory")
        times.check_order(self.since, self.until, "--until")
        if not allowed(self.own(settings), settings.allowed_themes):
            theme = self.own(settings)
            raise BadArgument(f"this theme is not in allowed_themes: {theme}; give one of them as --theme")

    def kinds(self) -> tuple[Kind, ...]:
        """Where to look: only entries have a target, and only turns have a role."""
        return ("entries",) if self.target else ("turns",) if self.role else _KINDS[self.kind]

    def own(self, settings: Settings) -> str:
        """The theme that asks."""
        return aliased(normalise(self.theme or DEFAULT_THEME), settings.theme_aliases)

    def request(self, runtime: Runtime) -> RecallRequest:
        """The same as an agent would ask it, with more patience."""
        scope = runtime.scope(self.own(runtime.settings), self.scope, self.session)
        return RecallRequest(
            query=self.query,
            scope=replace(scope, since=self.since, until=self.until, role=self.role),
            limit=self.top_k,
            budget_s=max(runtime.settings.recall_budget_s, BUDGET_S_MIN),
            target=self.target,
            context=self.context,
        )


def search(home: Path, console: Console, question: Question, *, explain: bool) -> int:
    """Recall what is asked for and print it, best first. Returns 1 when nothing could be asked."""
    settings = load(home)
    question.check(settings)
    start_server(Database(settings, home))
    runtime = acquire(settings, home)
    try:
        request = question.request(runtime)
        with console.busy("asking the memory"):
            _wait_ready(runtime)
            whole = runtime.writer.flush(request.budget_s, orphans=True)
            answers: dict[str, Recall] = {kind: runtime.recall(kind, request) for kind in question.kinds()}
    finally:
        release(runtime)
    asked = {
        "query": question.query,
        "theme": question.own(settings),
        "scope": question.scope or settings.scope_default,
    }
    console.data({**asked, **_documents(answers)})
    _show(answers, console, explain)
    if not whole:
        console.say("what dead processes left is not all stored yet; see: hermes-pgvector status")
    return 0


def _wait_ready(runtime: Runtime) -> None:
    """Wait for the database: long for an embedded one, which may have to be migrated, else for one attempt."""
    deadline = time.monotonic() + READY_S_MAX
    while not runtime.wait_ready(0.1):
        problem = runtime.writer.health.problem
        if problem or time.monotonic() > deadline:
            what = problem or f"the memory is not ready after {READY_S_MAX:g} s"
            raise DatabaseUnavailable(f"{what}; for more: hermes-pgvector doctor")


def _show(answers: Mapping[str, Recall], console: Console, explain: bool) -> None:
    for name, recall in answers.items():
        if not recall.hits:
            console.show(f"{_TITLES[name]}: nothing found")
        else:
            rows = [(f"{hit.score:.2f}", _told(hit, explain)) for hit in recall.hits]
            console.show(rows_table(("Score", _TITLES[name]), rows))
        if explain:
            console.show(_explained(recall))
        if name != list(answers)[-1]:
            console.show("")
    for reason in dict.fromkeys(reason for recall in answers.values() for reason in recall.degraded):
        console.say(f"degraded: {reason}")


def _told(hit: Hit, explain: bool) -> Text:
    """Where a hit comes from, and below it what it says, harmless for a terminal."""
    source = hit.target or f"{hit.role} in session {safe_line(hit.session_id, 36) or '(none)'}"
    why = f", said {hit.said} times" if hit.said > 1 else ""
    if explain:
        near = "no vector" if hit.similarity is None else f"similarity {hit.similarity:.3f}"
        words = f"BM25 {hit.words:.2f} ({safe_line(' '.join(hit.matched), 80)})" if hit.matched else "no words"
        why += f"  {near}, {words}"
    provenance = f"{safe_line(hit.theme, 40)}, {local(hit.at)}, {source}{why}\n"
    told = Text.assemble((provenance, "dim"), safe_line(hit.content, TEXT_CHARS_MAX))
    for beside in hit.context:
        told.append(f"\n  {beside.role}: {safe_line(beside.content, BESIDE_CHARS_MAX)}", "dim")
    return told


def _explained(recall: Recall) -> Text:
    told = recall.explanation
    return Text(
        f"{counted(told.rows, 'row')} in scope, plan: {told.plan}; {told.near} by meaning, {told.words} by words; "
        f"embed {told.embed_ms:g} ms, legs {told.legs_ms:g} ms, hits {told.hits_ms:g} ms",
        style="dim",
    )


def _documents(answers: Mapping[str, Recall]) -> dict[str, Any]:
    return {
        ("memory" if name == "entries" else "turns"): {
            "hits": [asdict(hit) for hit in recall.hits],
            "degraded": list(recall.degraded),
            "explanation": asdict(recall.explanation),
        }
        for name, recall in answers.items()
    }
