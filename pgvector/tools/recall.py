"""The tools that search: recall_memory and recall_conversation."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import Unavailable
from ..hosts.environment import user_zone
from ..model import TARGETS, Caller, Recall, RecallRequest
from ..runtime import Runtime
from ..text import times
from . import arguments as given
from .arguments import Arguments
from .recall_schemas import CONTEXT_MAX, LIMIT_DEFAULT, ROLES

if TYPE_CHECKING:
    from ..store.queries import Kind


def recall(kind: Kind, runtime: Runtime, arguments: Arguments, caller: Caller) -> dict[str, Any]:
    """Search entries or turns. Raises BadArgument, and what `Runtime.recall` raises."""
    from . import answers  # which takes long to import: a host reads the schemas at its start

    query = given.question(arguments, "query")
    settings = runtime.settings
    zone = user_zone()
    since = times.since(given.text(arguments, "since"), zone=zone)
    until = times.until(given.text(arguments, "until"), zone=zone)
    times.check_order(since, until)
    role, target = given.choice(arguments, "role", ROLES), given.choice(arguments, "target", TARGETS)
    tags, all_tags = given.tags(arguments, "tags") or (), given.switch(arguments, "all_tags")
    scope_name = given.text(arguments, "scope") or settings.scope_default
    scope = runtime.scope(caller.theme, scope_name, caller.session_id, caller.granted)
    if scope.sessions:
        with suppress(Unavailable):  # the host locks its record
            scope = replace(scope, sessions=(*scope.sessions, *caller.ancestors()))
    limit_max = settings.recall_limit_max
    request = RecallRequest(
        query=query,
        scope=replace(
            scope, since=since, until=until, role=role or "", target=target or "", tags=tags, all_tags=all_tags
        ),
        limit=given.whole(arguments, "limit", 1, limit_max) or min(LIMIT_DEFAULT, limit_max),
        context=given.whole(arguments, "context", 0, CONTEXT_MAX) or 0,
        budget_s=settings.recall_budget_s,
    )
    found, left_out = runtime.recall(kind, request), 0
    if settings.hide_suspicious and not given.switch(arguments, "include_suspicious"):
        found, left_out = _without_suspicious(found)
    return answers.of_recall(
        found, query=query, scope=scope_name, chars_max=settings.recall_chars_max, suspicious=left_out
    )


def _without_suspicious(found: Recall) -> tuple[Recall, int]:
    """The recall without rows that look like an attack, also beside hits, and how many there were."""
    from ..recall.quarantine import suspicions

    rows = [row for hit in found.texts for row in (hit, *hit.context)]
    bad = {id(row) for row in rows if suspicions(row)}
    if not bad:
        return found, 0
    hits = []
    for hit in found.hits:
        fine = [row for row in (hit, hit.side) if row and id(row) not in bad]
        if fine:
            context = tuple(row for row in hit.context if id(row) not in bad)
            hits.append(replace(fine[0], side=fine[1] if fine[1:] else None, context=context))
    left = replace(found, hits=tuple(hits))
    before, after = (len(each.texts) + sum(len(hit.context) for hit in each.hits) for each in (found, left))
    return left, before - after
