"""Turns that come late: after a replay has told of them, or after they were taken back.

Several processes of a home store what they have in the order of each, not of all, and one may be dead until another
one adopts what it left. What is stored in the end is the same in whatever order it comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from ..model import Event, Metadata, SessionEnded, TurnTaken, Withdrawn
from .connection.database import Connection
from .queries import QUERIES


def lock(connection: Connection, events: Iterable[Event]) -> None:
    """Keep the turns of these events' homes from being stored by others while this transaction counts them.

    To be called before any other lock is taken, so that two processes never wait for each other.
    """
    counting: dict[str, bool] = {}
    for event in events:
        if isinstance(event, TurnTaken | SessionEnded | Withdrawn):
            counting[event.home] = counting.get(event.home, False) or not isinstance(event, TurnTaken)
    for home, alone in sorted(counting.items()):
        connection.execute(QUERIES["lock_sessions" if alone else "share_sessions"], {"home": home})


def replayed(event: SessionEnded, missing: Sequence[tuple[str, str]]) -> list[TurnTaken]:
    """The turns that are stored of a replay, marked so that the turns themselves can take their places."""
    mark = {"at": event.at.isoformat(), "sessions": [event.session_id, *event.ancestors]}
    metadata: Metadata = {**event.metadata, "replayed": mark}
    return [
        TurnTaken(
            id=event.id, theme=event.theme, home=event.home, session_id=event.session_id, metadata=metadata,
            # Replayed turns come before the moment of the replay, in their order.
            at=event.at - timedelta(milliseconds=len(missing) - index), user=user, assistant=assistant,
            parent_session_id=event.parent_session_id,
        )
        for index, (user, assistant) in enumerate(missing)
    ]  # fmt: skip


def settle(connection: Connection, theme: str, turns: Sequence[TurnTaken]) -> None:
    """Put right what the turns that have just been stored would double, and take back those that were taken back."""
    for turn in turns:
        if turn.assistant and "replayed" not in turn.metadata:
            values = {
                "theme": theme, "session": turn.session_id, "question": turn.user, "content": turn.assistant,
                "at": turn.at,
            }  # fmt: skip
            connection.execute(QUERIES["replace_replayed"], values)
    _withdraw_again(connection, theme, turns)


def withdraw(connection: Connection, event: Withdrawn) -> None:
    """Delete the turns that were taken back, and keep in mind which, for those that are still to come."""
    for (user, assistant), standing in zip(event.turns, event.standing, strict=True):
        values = {
            "theme": event.theme, "sessions": [event.session_id, *event.continued], "at": event.at,
            "role": "assistant" if assistant else "user", "content": assistant or user, "standing": standing,
        }  # fmt: skip
        # A newer one has counted these turns already.
        if connection.execute(QUERIES["add_withdrawal"], values).rowcount:
            connection.execute(QUERIES["withdraw_turn"], values)


def _withdraw_again(connection: Connection, theme: str, turns: Iterable[TurnTaken]) -> None:
    columns: dict[str, list[Any]] = {"sessions": [], "roles": [], "contents": [], "times": []}
    for turn in turns:
        columns["sessions"].append(turn.session_id)
        columns["roles"].append("assistant" if turn.assistant else "user")
        columns["contents"].append(turn.assistant or turn.user)
        columns["times"].append(turn.at)
    for found in connection.execute(QUERIES["find_withdrawals"], {"theme": theme, **columns}).fetchall():
        connection.execute(QUERIES["withdraw_turn"], {"theme": theme, **found})
