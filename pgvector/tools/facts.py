"""The tools for facts: memory_write, memory_search, memory_tick, memory_status and their like.

A host imports this module at its start, so the functions import what takes long to import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import BadArgument, Refused, Unavailable
from ..model import Caller, Event, FactsPurged, FactsTicked, FactWritten, Hit, Recall, RecallRequest
from ..runtime import Runtime
from ..text.cleaning import clean
from . import arguments as given
from .arguments import Arguments
from .fact_schemas import REFLECT_LIMIT_DEFAULT, SEARCH_LIMIT_DEFAULT, SEARCH_LIMIT_MAX, STATUSES
from .storage import accept, check_kept, check_on_record, read_if_there, read_when_settled

if TYPE_CHECKING:
    from ..store.connection.database import Connection

T = TypeVar("T")

TURN_MAX = 1_000_000_000
DAYS_MAX = 36_500
# More than SEARCH_LIMIT_MAX may be asked for; so many are returned.
LIMIT_ASKED_MAX = 1_000_000
SESSION_CHARS_MAX = 200
MESSAGE_CHARS_MAX = 1_000_000
EXPORTED_MAX = 2000
EARLIER_MAX = 20
READ_S_MIN = 0.1
ORIGIN = "memory_write"


def write(runtime: Runtime, arguments: Arguments, caller: Caller) -> dict[str, Any]:
    """Accept a fact of the caller's theme, and wait for at most `write_wait_s` until it is stored.

    Raises BadArgument, which shows the right notation, Refused, or DatabaseUnavailable.
    """
    from ..facts import state
    from ..store import facts
    from . import fact_answers

    event = _fact(runtime, arguments, caller)

    def stored(connection: Connection, theme: str) -> dict[str, Any]:
        fact = facts.of_event(connection, theme, event.id)
        if fact is None and not facts.is_applied(connection, theme, event.id):
            raise Refused("the database refuses this fact; the reason is in: hermes-pgvector spool list")
        earlier = facts.displaced(connection, theme, [fact.id], EARLIER_MAX) if fact else []
        displaced = [old for old in earlier if fact and old.changed_at == fact.written_at]
        now = state.read(connection, theme, runtime.settings)
        return fact_answers.of_stored(event, fact, displaced, now, runtime.settings)

    return _when_stored(runtime, event, stored) or {**fact_answers.of_accepted(event), **fact_answers.PENDING}


def preview_of_write(runtime: Runtime, arguments: Arguments, caller: Caller) -> str:
    """What `write` would do. Raises as it does."""
    from ..facts.notation import formatted

    event = _fact(runtime, arguments, caller)
    where = f"\nin scope {event.scope}" if event.scope else ""
    return f"memory_write: {formatted(event.kind, event.target, event.content)}{where}"


def _fact(runtime: Runtime, arguments: Arguments, caller: Caller) -> FactWritten:
    from ..facts import notation

    check_on_record(caller)
    fact = notation.parse(given.text(arguments, "content"), runtime.settings.facts_text_chars_max)
    scope = notation.scope_label(given.text(arguments, "scope"))
    check_kept(caller, f"{fact}\n{scope}" if scope else str(fact))
    session = _session(arguments, caller)
    return FactWritten(
        theme=caller.theme, session_id=session, kind=fact.kind, target=fact.target,
        content=fact.content, scope=scope, metadata={"origin": ORIGIN, "session_id": session, **caller.marks},
    )  # fmt: skip


def tick(runtime: Runtime, arguments: Arguments, caller: Caller) -> dict[str, Any]:
    """Count a turn of the session; scopes whose work has ended close. The message is not stored. Raises as `write`."""
    from ..facts import state
    from ..facts.closing_signals import closes
    from . import fact_answers

    check_on_record(caller)
    turn = given.whole(arguments, "turn", 0, TURN_MAX)
    if turn is None:
        raise BadArgument("turn is missing; give the number of the user's message, one more with each")
    closing, settings = closes(clean(given.text(arguments, "message")[:MESSAGE_CHARS_MAX])), runtime.settings
    session = _session(arguments, caller)
    # Where the host counts the turns, numbers of the model would be turns of silence.
    turn = runtime.facts.turn(caller.theme, session) or turn
    event = FactsTicked(theme=caller.theme, session_id=session, turn=turn, closing=closing)
    before = _beforehand(runtime, caller.theme, lambda connection, theme: state.read(connection, theme, settings))

    def stored(connection: Connection, theme: str) -> dict[str, Any]:
        return {"status": "stored", **fact_answers.of_closed(before, state.read(connection, theme, settings), settings)}

    return {"turn": turn, "closing": closing, **(_when_stored(runtime, event, stored) or fact_answers.PENDING)}


def purge(runtime: Runtime, arguments: Arguments, caller: Caller) -> dict[str, Any]:
    """Delete superseded and archived facts of the caller's theme. Raises as `write`."""
    from ..facts import state
    from ..store import facts
    from . import fact_answers

    event = _purge(arguments, caller)
    count = _beforehand(runtime, caller.theme, lambda connection, theme: facts.purgeable(connection, theme, event))

    def stored(connection: Connection, theme: str) -> dict[str, Any]:
        now, left = state.read(connection, theme, runtime.settings), facts.purgeable(connection, theme, event)
        counts = {"purged": None if count is None else count - left, **({"left": left} if left else {})}
        return {"status": "purged", **counts, **fact_answers.of_gauge(now, runtime.settings)}

    return {"theme": caller.theme, **(_when_stored(runtime, event, stored) or fact_answers.PENDING)}


def preview_of_purge(_: Runtime, arguments: Arguments, caller: Caller) -> str:
    """What `purge` would do. Raises as it does."""
    event = _purge(arguments, caller)
    where = f" of scope {event.scope}" if event.scope else ""
    when = "" if event.older_than_days is None else f" older than {event.older_than_days} days"
    return f"memory_purge: delete superseded and archived facts{where}{when}"


def _purge(arguments: Arguments, caller: Caller) -> FactsPurged:
    from ..facts import notation

    scope = notation.scope_label(given.text(arguments, "scope"))
    days = given.whole(arguments, "older_than_days", 0, DAYS_MAX)
    return FactsPurged(theme=caller.theme, session_id=caller.session_id, scope=scope, older_than_days=days)


def search(runtime: Runtime, arguments: Arguments, caller: Caller) -> dict[str, Any]:
    """Find current facts by words and by meaning. Raises BadArgument, and what `Runtime.recall` raises."""
    from ..facts import notation
    from . import fact_answers

    query, scope = given.question(arguments, "query"), notation.scope_label(given.text(arguments, "scope"))
    found = _found(runtime, caller, query, scope, _limit(arguments, SEARCH_LIMIT_DEFAULT))
    own, chars_max = runtime.own(caller.theme), runtime.settings.recall_chars_max
    return fact_answers.of_search(found, query=query, scope=scope, own=own, chars_max=chars_max)


def reflect(runtime: Runtime, arguments: Arguments, caller: Caller) -> dict[str, Any]:
    """All about a topic by kind, with what was superseded. Raises as `search`."""
    from ..store import facts
    from . import fact_answers

    topic = given.question(arguments, "topic")
    found = _found(runtime, caller, topic, "", _limit(arguments, REFLECT_LIMIT_DEFAULT))
    ids = [hit.id for hit in found.hits]
    budget_s, chars_max = runtime.settings.recall_budget_s, runtime.settings.recall_chars_max

    def displaced(connection: Connection, theme: str) -> list[facts.Fact]:
        return facts.displaced(connection, theme, ids, EARLIER_MAX)

    earlier = read_if_there(runtime, caller.theme, displaced, budget_s) if ids else None
    own = runtime.own(caller.theme)
    return fact_answers.of_reflection(found, earlier or [], topic=topic, own=own, chars_max=chars_max)


def status(runtime: Runtime, arguments: Arguments, caller: Caller) -> dict[str, Any]:
    """The block to inject, with its figures. Raises BadArgument, or Unavailable."""
    from ..facts import state
    from . import fact_answers

    _session(arguments, caller)
    settings = runtime.settings
    now = read_when_settled(runtime, caller.theme, lambda connection, theme: state.read(connection, theme, settings))
    return fact_answers.of_status(now, settings)


def export(runtime: Runtime, arguments: Arguments, caller: Caller) -> dict[str, Any]:
    """The current facts in their notation, the newest first. Raises BadArgument, or Unavailable."""
    from ..facts import notation
    from ..store import facts
    from . import fact_answers

    scope = notation.scope_label(given.text(arguments, "scope")) or None
    statuses = STATUSES[given.choice(arguments, "status", STATUSES) or "all"]
    found = read_when_settled(
        runtime,
        caller.theme,
        lambda connection, theme: facts.listed(connection, theme, scope, statuses, EXPORTED_MAX + 1),
    )
    more, chars_max = len(found) > EXPORTED_MAX, runtime.settings.recall_chars_max
    return fact_answers.of_export(caller.theme, found[:EXPORTED_MAX], more=more, chars_max=chars_max)


def _found(runtime: Runtime, caller: Caller, query: str, label: str, limit: int) -> Recall:
    """The facts that answer a question; that they were used is noted later."""
    scope = replace(runtime.scope(caller.theme, "current", caller.session_id, caller.granted), label=label)
    request = RecallRequest(query=query, scope=scope, limit=limit, budget_s=runtime.settings.recall_budget_s)
    found = runtime.recall("facts", request)
    # Another theme is only read.
    if used := [hit for hit in found.hits if hit.theme in runtime.own(caller.theme)]:
        runtime.in_background(_note_use, runtime, used)
    return found


def _note_use(runtime: Runtime, hits: Sequence[Hit]) -> None:
    from ..store import facts

    budget_s = runtime.settings.recall_budget_s
    with suppress(Unavailable), runtime.database.connection(budget_s, within_s=budget_s) as connection:
        for theme in {hit.theme for hit in hits}:
            facts.used(connection, theme, [hit.id for hit in hits if hit.theme == theme])


def _when_stored(
    runtime: Runtime, event: Event, answer: Callable[[Connection, str], dict[str, Any]]
) -> dict[str, Any] | None:
    """Accept an event, and answer when it is stored within `write_wait_s`, else None. Raises DatabaseUnavailable."""
    accept(runtime, event)
    if not runtime.writer.flush(runtime.settings.write_wait_s):
        return None
    return read_if_there(runtime, event.theme, answer, runtime.settings.recall_budget_s)


def _beforehand(runtime: Runtime, theme: str, reading: Callable[[Connection, str], T]) -> T | None:
    """What is read of a theme before an event is accepted, which waits no longer for it than for the store."""
    return read_if_there(runtime, theme, reading, max(READ_S_MIN, runtime.settings.write_wait_s))


def _session(arguments: Arguments, caller: Caller) -> str:
    session = clean(given.text(arguments, "session_id")).strip()
    if len(session) > SESSION_CHARS_MAX:
        raise BadArgument(f"session_id has {len(session)} characters; it may have {SESSION_CHARS_MAX}")
    return session or caller.session_id


def _limit(arguments: Arguments, default: int) -> int:
    return min(given.whole(arguments, "limit", 1, LIMIT_ASKED_MAX) or default, SEARCH_LIMIT_MAX)
