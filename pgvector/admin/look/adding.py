"""add: an entry of an operator, stored as that of an agent."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import BadArgument, PgvectorError, explained
from ...model import Caller
from ...runtime import Runtime
from ...settings import Settings, load
from ...store.connection.database import Database
from ...store.entries import entry_with
from ...store.person_links import person_of
from ...text import times
from ...text.cleaning import clean
from ...text.keep import Source
from ...text.sanitize import safe_line
from ...tools.entries import remember
from ..console import ATTENTION, Console
from ..database import permitted, running, start_server, wait_ready

STORED_S_MAX = 30.0
NAME_CHARS_MAX = 128


def add(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Accept an entry into the outbox, and with `--sync` wait for its row. Returns 0, or 3 when it is not stored yet.

    Raises BadArgument, Refused, and DatabaseUnavailable when the outbox cannot be written.
    """
    settings = load(home)
    theme = permitted(args.theme, home, settings)
    arguments = {
        "content": given_text(args.text, settings), "target": args.target, "tags": args.tag or None,
        "metadata": _metadata(args.metadata), "expires": args.expires,
    }  # fmt: skip
    with console.busy("storing"):
        start_server(Database(settings, home))
        with running(settings, home) as runtime:
            refusal = partial(runtime.context.capture.why_no_entry, source=Source())
            off = settings.off_record
            caller = Caller(theme=theme, marks={"context": "operator"}, off_record=off, refusal=refusal)
            answer = remember(runtime, arguments, caller)
            problem = _stored(runtime, theme, arguments, answer) if args.sync else ""
    console.data({**answer, "problem": problem})
    number = f", as entry {answer['id']}" if "id" in answer else ""
    console.show(f"{answer['status']} in theme {safe_line(theme, NAME_CHARS_MAX)}{number}")
    if answer.get("already_there"):
        console.say("the theme had this entry already")
    if problem:
        console.say(f"hermes-pgvector: it is accepted, and not stored yet: {problem}")
    return ATTENTION if problem else 0


def given_text(text: str, settings: Settings) -> str:
    """The text of an argument, or the standard input for `-`, of which no more is read than can be stored."""
    try:
        given = sys.stdin.read(settings.content_chars_max + 1) if text == "-" else text
        given.encode()  # Python reads it with surrogates where LANG is C
        return clean(given)
    except UnicodeError:
        raise BadArgument(f"{'the standard input' if text == '-' else 'the message'} is not text in UTF-8") from None


def _metadata(pairs: list[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise BadArgument(f"--metadata is {pair[:40]!r}; write it as NAME=VALUE")
        found[name.strip()] = value
    return found


def _stored(runtime: Runtime, theme: str, arguments: dict[str, Any], answer: dict[str, Any]) -> str:
    """Why the entry is not stored yet; empty when it is, and then the answer gets its id."""
    try:
        wait_ready(runtime)
        if not runtime.writer.flush(STORED_S_MAX):
            return runtime.writer.health.problem or f"{STORED_S_MAX:g} s were not enough"
        with runtime.database.connection() as reading:
            found = entry_with(reading, person_of(reading, theme), arguments["target"], arguments["content"].strip())
    except PgvectorError as error:
        return explained(error)
    if found is None:
        return "it has no row, and may be a dead letter; see: hermes-pgvector spool list"
    answer |= {"status": "stored", "id": found.id}
    if times.utc_text(found.created_at) != answer["time"]:
        answer["already_there"] = True
    return ""
