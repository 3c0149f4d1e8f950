"""Turns that the user took back, as the host's record of a session shows them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, TypeAlias

from ..hosts.environment import scrubber
from ..hosts.transcript import MERGED, carried, exchanges, is_compressed, is_summary, text_of
from ..model import Withdrawn, now
from .off_record import PARTS_MAX, has_switch
from .off_record import recorded as recorded_turns
from .state import EVENT_TURNS_MAX, Taken, Turn

Pair: TypeAlias = tuple[str, str]
Messages: TypeAlias = Sequence[Mapping[str, Any]]
# The sides of a turn that are stored, the others empty.
Keep: TypeAlias = Callable[[str, str], Pair]


def of_one(turn: Pair, left: int, **origin: Any) -> Withdrawn:
    """The withdrawal of a turn as it was stored, of which so many are left in the session."""
    return Withdrawn(at=now(), turns=(turn,), standing=(left,), **origin)


def of_all(turns: Sequence[Taken], **origin: Any) -> Withdrawn:
    """The withdrawal of turns of which none is left in the session."""
    return Withdrawn(at=now(), turns=tuple(turn.sides for turn in turns), standing=(0,) * len(turns), **origin)


def times(turn: Pair, messages: Messages, keep: Keep) -> int:
    """How often a transcript has a turn as it was stored."""
    return sum(key(keep(*pair)) == key(turn) for pair in exchanges(messages))


def stored(turns: Sequence[Pair], keep: Keep) -> list[Pair]:
    """These turns of the host's record as they were stored."""
    # The record has the texts before the host removes secrets.
    scrub = scrubber()
    return [keep(scrub(user), scrub(answer)) for user, answer in turns]


def withdrawn_messages(messages: Messages) -> list[Mapping[str, Any]]:
    """The messages that were taken back.

    One host marks the last ones so when it compresses a session in place, and writes them once more with their times.
    """
    standing = {(m["role"], m["content"], m["written"]) for m in _remaining(messages) if m["written"]}
    return [m for m in messages if m["taken_back"] and (m["role"], m["content"], m["written"]) not in standing]


def withdrawn_turns(messages: Messages, keep: Keep, *, off: bool) -> tuple[Pair, ...]:
    """What identifies the last stored turns of a session that were taken back, each once.

    `off` is whether it is off the record now.
    """
    # Turns off the record were not stored, and must not get into the spool; nor must a question where its answer tells.
    said, recorded = _as_said(messages), set[Pair]()
    # A summary may have the message that put the session on the record again.
    for part in (said, _as_said(_since_summary(messages))):
        apart = _apart(recorded_turns(part, ends_off=off, merged=True))
        recorded |= set(map(key, stored([*recorded_turns(part, ends_off=off), *apart], keep)))
    turns = stored(_apart(exchanges(withdrawn_messages(messages))), keep)
    withdrawn = dict.fromkeys(key(turn) for turn in turns if any(turn))
    return tuple(turn for turn in withdrawn if turn in recorded)[-EVENT_TURNS_MAX:]


def _since_summary(messages: Messages) -> Messages:
    """The messages after the last summary; none where a message among them switches the session.

    The turns before `off the record` would count as said on the record, also where somebody says so again.
    """
    places = (place for place, m in enumerate(messages, 1) if is_summary(m, text_of(m["content"])))
    since = messages[max(places, default=len(messages)) :]
    return () if has_switch(since) else since


def _as_said(messages: Messages) -> Messages:
    """The messages, those of a turn together, in the order of its answers.

    One host writes what stands behind what was taken back, with its times, when a question is asked again.
    """
    turns, ended = list[tuple[float, list[Mapping[str, Any]]]](), 0.0
    for message in messages:
        if message["role"] == "user" or not turns:
            turns.append((ended, []))
        turns[-1][1].append(message)
        if message["role"] == "assistant" and message["written"]:
            ended = message["written"]
            turns[-1] = (ended, turns[-1][1])
    return [message for _, turn in sorted(turns, key=itemgetter(0)) for message in turn]


def remaining(turns: Sequence[Pair], sessions: Sequence[Messages], keep: Keep) -> tuple[int, ...]:
    """How many turns equal to each of `turns` are left in sessions that follow each other by compression.

    A turn that a compression carried into the next transcript counts once.
    """
    left: Counter[Pair] = Counter()
    for messages in sessions:
        left.update(map(key, stored(_apart(exchanges(_remaining(messages))), keep)))
    for before, after in pairwise(sessions):
        twice = carried(exchanges(_remaining(before)), exchanges(after))
        left.subtract(map(key, stored(_apart(twice), keep)))
    return tuple(max(0, left[key(turn)]) for turn in turns)


def is_withdrawn(turn: Turn, messages: Messages) -> bool:
    """Whether an open turn was taken back: its question, and all that the host recorded since it began."""
    since = [message for message in messages if message["written"] >= turn.began.timestamp()]
    asked = any(m["role"] == "user" and m["content"] == turn.question for m in withdrawn_messages(messages))
    return asked and bool(since) and not _remaining(since)


def asked_again(noted: Sequence[Taken], question: str, before: Messages | None, keep: Keep) -> Sequence[Taken]:
    """The last turn with this question, asked again in its place, and the turns after it; empty when it was not.

    `noted` are the last turns in order, `before` the messages before the question. Hosts tell nothing of `/retry`, and
    one removes from its record with it what `/undo` took back right before. None of these turns is in the transcript
    then, and as much is before the new question as was before the turn.
    """
    place = None if before is None else len(before)
    first = next((n for n, turn in enumerate(noted) if (turn.question, turn.place) == (question, place)), None)
    if first is None or before is None or is_compressed(before):
        return ()
    pairs = exchanges(before)
    standing = {key(keep(*pair)) for pair in pairs}
    is_there = question in dict(pairs) or any(key(turn.sides) in standing for turn in noted[first:])
    return () if is_there else noted[first:]


def stand(turns: Sequence[Taken], messages: Messages, keep: Keep) -> bool:
    """Whether the host's record of a session has one of these turns."""
    standing = set(map(key, stored(exchanges(_remaining(messages)), keep)))
    return any(key(turn.sides) in standing for turn in turns)


def _apart(turns: Iterable[Pair]) -> list[Pair]:
    """The turns, and the questions without an answer that one host may have merged with theirs, as far as it shows."""
    found = list[Pair]()
    for question, answer in turns:
        *before, _ = question.split(MERGED)[-PARTS_MAX:]
        found += [(text, "") for text in dict.fromkeys((*before, MERGED.join(before))) if text]
        found.append((question, answer))
    return found


def key(turn: Pair) -> Pair:
    """What identifies a turn, as in a replay: its answer, or its question when it has none."""
    user, answer = turn
    return ("", answer) if answer else (user, "")


def _remaining(messages: Messages) -> list[Mapping[str, Any]]:
    return [message for message in messages if not message["taken_back"]]
