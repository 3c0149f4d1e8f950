"""Turns that are stored after a replay that contains them, or after their withdrawal.

Each process of a home stores its own events in order, but the processes are not in step, and the events of a dead one
come when another takes its spool over. The rows are the same in the end, whatever the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta

from ..files import mark_name
from ..model import Event, SessionEnded, TurnTaken, Withdrawn
from ..text.masks import around_masks, masked
from .connection.database import Connection
from .connection.messages import Statement
from .queries import QUERIES


def locks(events: Iterable[Event]) -> list[Statement]:
    """The statements that keep other processes from storing turns of these events' homes while turns are counted.

    Run them before any other lock is taken, so that two processes cannot deadlock.
    """
    exclusive: dict[str, bool] = {}
    for event in events:
        if isinstance(event, TurnTaken | SessionEnded | Withdrawn):
            exclusive[event.home] = exclusive.get(event.home, False) or not isinstance(event, TurnTaken)
    return [
        (QUERIES["lock_sessions" if alone else "share_sessions"], {"home": home})
        for home, alone in sorted(exclusive.items())
    ]


def replayed(event: SessionEnded, missing: Sequence[tuple[str, str]]) -> list[TurnTaken]:
    """The missing turns of a replay, marked so that the turns themselves can replace them later.

    `tools` in the metadata of the replay are those of each answer, by its mark.
    """
    mark = {"at": event.at.isoformat(), "sessions": [event.session_id, *event.ancestors]}
    common, given = {**event.metadata, "replayed": mark}, event.metadata.get("tools")
    common.pop("tools", None)
    by_answer = given if isinstance(given, Mapping) else {}
    tools = {answer: by_answer.get(mark_name(answer)) for _, answer in missing}
    return [
        TurnTaken(
            id=event.id, theme=event.theme, home=event.home, session_id=event.session_id,
            metadata=common | ({"tools": tools[assistant]} if tools[assistant] else {}),
            # Before the time of the replay, in order.
            at=event.at - timedelta(milliseconds=len(missing) - index), user=user, assistant=assistant,
            parent_session_id=event.parent_session_id,
        )
        for index, (user, assistant) in enumerate(missing)
    ]  # fmt: skip


def unmasked(connection: Connection, theme: str, sessions: Sequence[str], texts: Iterable[str]) -> dict[str, str]:
    """The stored forms of masked texts in which secrets are not masked, each with the masked text.

    An earlier release has stored them, or `mask_secrets` was off.
    """
    around = {text: sides for text in texts if (sides := around_masks(text))}
    if not around:
        return {}
    values = {
        "theme": theme, "sessions": list(sessions), "before": [before for before, _ in around.values()],
        "after": [after for _, after in around.values()],
    }  # fmt: skip
    stored: list[str] = [row["content"] for row in connection.execute(QUERIES["find_unmasked"], values)]
    forms = {text: masked(text) for text in stored}
    return {text: form for text, form in forms.items() if form != text and form in around}


def settle(connection: Connection, theme: str, turns: Sequence[TurnTaken]) -> None:
    """Delete what replays stored of turns that have just been stored, and the turns that were withdrawn before."""
    for turn in turns:
        if turn.assistant and "replayed" not in turn.metadata:
            connection.execute(QUERIES["replace_replayed"], asdict(turn))
    parameters = {
        "theme": theme,
        "sessions": [turn.session_id for turn in turns],
        "roles": ["assistant" if turn.assistant else "user" for turn in turns],
        "contents": [turn.assistant or turn.user for turn in turns],
        "times": [turn.at for turn in turns],
    }
    for found in connection.execute(QUERIES["find_withdrawals"], parameters).fetchall():
        connection.execute(QUERIES["withdraw_turn"], {"theme": theme, **found})


def withdraw(connection: Connection, event: Withdrawn, names: Iterable[str] = ()) -> None:
    """Delete the turns of a withdrawal, and record it for those that are stored later.

    Turns that are still stored under other names of the theme are deleted, too; of those that are equal, as many stay
    under each name as may until they are moved.
    """
    for (user, assistant), standing in zip(event.turns, event.standing, strict=True):
        values = {
            "theme": event.theme, "sessions": [event.session_id, *event.continued], "at": event.at,
            "role": "assistant" if assistant else "user", "content": assistant or user, "standing": standing,
        }  # fmt: skip
        # Not when a newer withdrawal has counted these turns already.
        if connection.execute(QUERIES["add_withdrawal"], values).rowcount:
            for theme in (event.theme, *names):
                forms = unmasked(connection, theme, [event.session_id, *event.continued], [assistant or user])
                for content in (assistant or user, *forms):
                    connection.execute(QUERIES["withdraw_turn"], {**values, "theme": theme, "content": content})


def withdraw_moved(connection: Connection, theme: str, ids: Sequence[int] | None = None) -> None:
    """Delete withdrawn turns of a theme that were moved to it after their withdrawal; only those with the given ids."""
    for found in connection.execute(QUERIES["withdrawals_of_turns"], {"theme": theme, "ids": ids}).fetchall():
        connection.execute(QUERIES["withdraw_turn"], {"theme": theme, **found})
