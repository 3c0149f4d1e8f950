"""search: ask the memory what an agent would ask, and see how the answer came about."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.text import Text

from ..errors import BadArgument
from ..hosts.provenance import OUTSIDE, source_of
from ..model import Hit, Recall, RecallRequest
from ..recall.quarantine import suspicions
from ..settings import Settings, load
from ..store.connection.database import Database
from ..store.queries import Kind
from ..text import times
from ..text.sanitize import safe_line
from ..text.tags import normalised as normalised_tags
from .console import ATTENTION, Cell, Console, counted, labels, local_time, rows_table
from .database import permitted, running, start_server, wait_ready

BUDGET_S_MIN = 10.0
TEXT_CHARS_MAX = 400
CONTEXT_CHARS_MAX = 200
# The names of the kinds of rows, as arguments and in the output.
_NAMES: dict[Kind, str] = {"entries": "memory", "turns": "turns"}


def search(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Recall and print the hits, best first. Returns ATTENTION when the recall was degraded.

    Raises BadArgument and DatabaseUnavailable.
    """
    settings = load(home)
    theme = permitted(args.theme, home, settings)
    since = times.since(args.since, "--since", zone=None)
    until = times.until(args.until, "--until", zone=None)
    times.check_order(since, until, "--until")
    tags = normalised_tags(args.tag, "--tag")
    # Only entries have a target, only turns have a role.
    wanted = "memory" if args.target else "turns" if args.role else args.kind
    _check(args, wanted, settings)
    start_server(Database(settings, home))
    with running(settings, home) as runtime:
        scope = replace(runtime.scope(theme, args.scope, args.session), tags=tags, all_tags=args.all_tags)
        request = RecallRequest(
            query=args.query,
            scope=replace(scope, since=since, until=until, role=args.role, target=args.target or ""),
            limit=args.limit,
            budget_s=max(settings.recall_budget_s, BUDGET_S_MIN),
            context=args.context,
        )
        with console.busy("searching"):
            wait_ready(runtime)
            complete = runtime.writer.flush(request.budget_s, orphans=True)
            kinds = [kind for kind, name in _NAMES.items() if wanted in (name, "both")]
            recalls = zip(kinds, runtime.recall_each(kinds, request), strict=True)
            answers = {_NAMES[kind]: recall for kind, recall in recalls}
    asked = {"query": args.query, "theme": theme, "scope": args.scope or settings.scope_default}
    console.data({**asked, **{name: _document(recall) for name, recall in answers.items()}})
    _show(answers, console, args.explain, settings.hide_suspicious)
    if not any(recall.hits for recall in answers.values()):
        rows = counted(sum(recall.explanation.rows for recall in answers.values()), "row")
        console.say(f"searched {rows} as theme {theme}; see hermes-pgvector themes, and give another as --theme T")
    if not complete:
        console.say(
            "some events of ended processes are not stored yet and were not searched; see: hermes-pgvector status"
        )
    return 0 if complete and not any(recall.degraded for recall in answers.values()) else ATTENTION


def _check(args: argparse.Namespace, wanted: str, settings: Settings) -> None:
    if args.limit > settings.recall_limit_max:
        raise BadArgument(f"--limit is {args.limit}; recall_limit_max allows {settings.recall_limit_max}")
    if not args.query.strip():
        raise BadArgument("the query is empty; give a text to search for")
    if args.kind not in (wanted, "both"):
        raise BadArgument(f"{'--target' if args.target else '--role'} excludes --kind {args.kind}")


def _show(answers: Mapping[str, Recall], console: Console, explain: bool, hide: bool) -> None:
    for number, (name, recall) in enumerate(answers.items()):
        if number:
            console.show("")
        if not recall.hits:
            console.show(f"{name.title()}: nothing found")
        else:
            rows: list[dict[str, Cell]] = [
                {"Score": f"{hit.score:.2f}", name.title(): _described(hit, explain, hide)} for hit in recall.texts
            ]
            console.show(rows_table(rows))
        if explain:
            console.show(_explained(recall))
        if recall.period:
            words, first = safe_line(recall.period.words, 60), local_time(recall.period.since)
            console.say(f"favoured: rows of {words!r}, from {first} to {local_time(recall.period.until)}")
    for reason in dict.fromkeys(reason for recall in answers.values() for reason in recall.degraded):
        console.say(f"degraded: {reason}")


def _described(hit: Hit, explain: bool, hide: bool) -> Text:
    source = (
        f"{hit.target} {hit.id}" if hit.target else f"{hit.role} in session {safe_line(hit.session_id, 36) or '(none)'}"
    )
    origin = source_of(hit.role, hit.metadata)
    why = (
        (f", from {origin}" if origin in OUTSIDE else "")
        + (f", said {hit.said} times" if hit.said > 1 else "")
        + (f", {hit.alike} more alike" if hit.alike else "")
        + (f", older than {hit.newer[0]} of {local_time(hit.newer[1])}" if hit.newer else "")
        + labels(hit.tags, hit.expires_at)
        + (f", held back: {', '.join(reasons)}" if hide and (reasons := suspicions(hit)) else "")
    )
    if explain:
        similarity = "no vector" if hit.similarity is None else f"similarity {hit.similarity:.3f}"
        words = f"BM25 {hit.words:.2f} ({safe_line(' '.join(hit.matched), 80)})" if hit.matched else "no words"
        relevance = "" if hit.relevance is None else f", relevance {hit.relevance:.3f}"
        why += f"  {similarity}, {words}{relevance}"
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


def _document(recall: Recall) -> dict[str, Any]:
    return {
        "hits": [asdict(hit) for hit in recall.hits],
        "degraded": list(recall.degraded),
        "period": recall.period and asdict(recall.period),
        "explanation": asdict(recall.explanation),
    }
