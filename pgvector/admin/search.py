"""search: ask the memory what an agent would ask, and see how the answer came about."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.text import Text

from ..errors import BadArgument, DatabaseUnavailable
from ..model import Hit, Recall, RecallRequest
from ..runtime import Runtime, acquire, release
from ..session.themes import aliased, allowed
from ..settings import Settings, load
from ..store.connection.database import Database
from ..store.queries import Kind
from ..text import times
from ..text.sanitize import safe_line
from ..text.theme_names import DEFAULT_THEME, normalise
from .console import Console, counted, local_time, rows_table
from .database import start_server

READY_S_MAX = 60.0
BUDGET_S_MIN = 10.0
TEXT_CHARS_MAX = 400
CONTEXT_CHARS_MAX = 200
_KINDS: dict[str, tuple[Kind, ...]] = {"memory": ("entries",), "turns": ("turns",), "both": ("entries", "turns")}
_TITLES = {"entries": "Memory", "turns": "Turns"}


def search(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Recall and print the hits, best first. Returns 0. Raises BadArgument and DatabaseUnavailable."""
    settings = load(home)
    theme = aliased(normalise(args.theme or DEFAULT_THEME), settings.theme_aliases)
    since = times.since(args.since, "--since", zone=None)
    until = times.until(args.until, "--until", zone=None)
    times.check_order(since, until, "--until")
    _check(args, theme, settings)
    # Only entries have a target, only turns have a role.
    kinds: tuple[Kind, ...] = ("entries",) if args.target else ("turns",) if args.role else _KINDS[args.kind]
    start_server(Database(settings, home))
    runtime = acquire(settings, home)
    try:
        scope = runtime.scope(theme, args.scope, args.session)
        request = RecallRequest(
            query=args.query,
            scope=replace(scope, since=since, until=until, role=args.role, target=args.target or ""),
            limit=args.top_k,
            budget_s=max(settings.recall_budget_s, BUDGET_S_MIN),
            context=args.context,
        )
        with console.busy("searching"):
            _wait_ready(runtime)
            complete = runtime.writer.flush(request.budget_s, orphans=True)
            answers: dict[str, Recall] = {kind: runtime.recall(kind, request) for kind in kinds}
    finally:
        release(runtime)
    asked = {"query": args.query, "theme": theme, "scope": args.scope or settings.scope_default}
    console.data({**asked, **_documents(answers)})
    _show(answers, console, args.explain)
    if not complete:
        console.say(
            "some events of ended processes are not stored yet and were not searched; see: hermes-pgvector status"
        )
    return 0


def _check(args: argparse.Namespace, theme: str, settings: Settings) -> None:
    if not 1 <= args.top_k <= settings.recall_limit_max:
        raise BadArgument(f"--top-k is {args.top_k}; it must be from 1 to {settings.recall_limit_max}")
    if not args.query.strip():
        raise BadArgument("the query is empty; give a text to search for")
    if args.target and args.role:
        raise BadArgument("--target selects entries and --role selects turns; give one of them")
    if args.target and args.kind == "turns":
        raise BadArgument("--target selects entries and excludes --kind turns")
    if args.role and args.kind == "memory":
        raise BadArgument("--role selects turns and excludes --kind memory")
    if not allowed(theme, settings.allowed_themes):
        raise BadArgument(f"this theme is not in allowed_themes: {theme}; give one of them as --theme")


def _wait_ready(runtime: Runtime) -> None:
    """Wait for the database until it answers or an attempt fails. An embedded server may have to start and migrate."""
    deadline = time.monotonic() + READY_S_MAX
    while not runtime.wait_ready(0.1):
        problem = runtime.writer.health.problem
        if problem or time.monotonic() > deadline:
            what = problem or f"the memory is not ready after {READY_S_MAX:g} s"
            raise DatabaseUnavailable(f"{what}; for more: hermes-pgvector doctor")


def _show(answers: Mapping[str, Recall], console: Console, explain: bool) -> None:
    for number, (name, recall) in enumerate(answers.items()):
        if number:
            console.show("")
        if not recall.hits:
            console.show(f"{_TITLES[name]}: nothing found")
        else:
            rows = [(f"{hit.score:.2f}", _described(hit, explain)) for hit in recall.hits]
            console.show(rows_table(("Score", _TITLES[name]), rows))
        if explain:
            console.show(_explained(recall))
    for reason in dict.fromkeys(reason for recall in answers.values() for reason in recall.degraded):
        console.say(f"degraded: {reason}")


def _described(hit: Hit, explain: bool) -> Text:
    source = hit.target or f"{hit.role} in session {safe_line(hit.session_id, 36) or '(none)'}"
    why = f", said {hit.said} times" if hit.said > 1 else ""
    if explain:
        similarity = "no vector" if hit.similarity is None else f"similarity {hit.similarity:.3f}"
        words = f"BM25 {hit.words:.2f} ({safe_line(' '.join(hit.matched), 80)})" if hit.matched else "no words"
        why += f"  {similarity}, {words}"
    provenance = f"{safe_line(hit.theme, 40)}, {local_time(hit.at)}, {source}{why}\n"
    text = Text.assemble((provenance, "dim"), safe_line(hit.content, TEXT_CHARS_MAX))
    for neighbour in hit.context:
        text.append(f"\n  {neighbour.role}: {safe_line(neighbour.content, CONTEXT_CHARS_MAX)}", "dim")
    return text


def _explained(recall: Recall) -> Text:
    how = recall.explanation
    return Text(
        f"{counted(how.rows, 'row')} in scope, plan: {how.plan}; {how.near} by vectors, {how.words} by words; "
        f"embedding {how.embed_ms:g} ms, search {how.legs_ms:g} ms, hits {how.hits_ms:g} ms",
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
