"""capture explain: what would be stored of a message, which rule decides, and why."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TypeAlias

from ..session import off_record
from ..session.capture import SIDES, Capture
from ..session.identity import Identity
from ..settings import Settings, load
from ..text.keep import PRIVATE_CHATS, TERMINALS, Source
from ..text.keep_rules import Rule
from ..text.sanitize import safe_line
from .console import Cell, Console, facts_table, rows_table

Decision: TypeAlias = dict[str, bool | str]

RULE_CHARS_MAX = 200
OFF_RECORD = "off_record is true"
SAVED_MEANWHILE = "what the agent saves after this message is off the record"
SWITCHES = "it takes the session or itself off the record, or puts the session on it"


def explain(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print what is stored of a message as a turn and as an entry, and whether it recalls. Returns 0."""
    settings = load(home)
    capture, source = Capture(settings), _identity(args).source(args.author)
    turn = _turn(settings, capture, source, args)
    entry = _entry(settings, capture, source, args)
    recall = _recall(capture, args)
    console.data({"text": args.text, "turn": turn, "entry": entry, "recall": recall})
    rows = [*((f"turn, {side}", found) for side, found in turn.items()), ("entry", entry), ("recall", recall)]
    console.show(facts_table([(name, _described(found)) for name, found in rows]))
    if settings.keep:
        console.show("", rows_table([_row(number, rule) for number, rule in enumerate(settings.keep, 1)]))
    return 0


def _turn(settings: Settings, capture: Capture, source: Source, args: argparse.Namespace) -> dict[str, Decision]:
    said = (args.text, args.answer) if args.role == "user" else ("", args.text)
    verdict = capture.turn(said[0], said[1], source, context=args.context)
    unheard = OFF_RECORD if settings.off_record else SWITCHES if off_record.unrecorded(said[0]) else ""
    return {
        side: _decision("stored", unheard or verdict.reasons.get(side, ""), str(verdict.rulings.get(side, "")))
        for side, text in zip(SIDES, said, strict=True)
        if text or side == args.role
    }


def _entry(settings: Settings, capture: Capture, source: Source, args: argparse.Namespace) -> Decision:
    why_not = OFF_RECORD if settings.off_record else capture.why_no_entry(args.text, source)
    if args.role == "user" and off_record.unrecorded(args.text) and off_record.switch(args.text) is not False:
        why_not = why_not or SAVED_MEANWHILE
    return _decision("stored", why_not, str(capture.entry_ruling(args.text, source)))


def _recall(capture: Capture, args: argparse.Namespace) -> Decision:
    if args.role != "user":
        return _decision("recalled", "an answer recalls nothing", "")
    switches = SWITCHES if off_record.unrecorded(args.text) else ""
    return _decision("recalled", switches or capture.why_no_recall(args.text, args.context), "")


def _identity(args: argparse.Namespace) -> Identity:
    chat_type = args.chat_type or ("" if args.platform in TERMINALS or not args.room else "group")
    private = not chat_type or chat_type in PRIVATE_CHATS
    return Identity(
        platform=args.platform, chat_type=chat_type, chat_id=args.room, user_id=args.author if private else ""
    )


def _decision(done: str, why_not: str, why: str) -> Decision:
    return {done: not why_not, "why": why_not or why}


def _described(decision: Decision) -> str:
    (done, yes), (_, why) = decision.items()
    return f"{done if yes else f'not {done}'}{f': {why}' if why else ''}"


def _row(number: int, rule: Rule) -> dict[str, Cell]:
    names = ("platform", "chat_type", "room", "author", "role", "pattern")
    conditions = [f"{name} {getattr(rule, name)}" for name in names if getattr(rule, name)]
    return {"Rule": number, "Keeps": rule.action, "Where": safe_line(", ".join(conditions) or "always", RULE_CHARS_MAX)}
