"""import: bring an archive or the memory of another package into the database. A second import adds what is new."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from ...errors import BadArgument, Refused, SchemaNotApplied
from ...files import expanded
from ...hosts.environment import profile_name
from ...hosts.installation import upgrade
from ...session.identity import Identity
from ...session.themes import allowed, home_theme, stored_name
from ...settings import Settings, load
from ...store.archive.lines import Line, Reader
from ...store.connection.database import Database
from ...store.connection.dsn import describe
from ...store.schema.verification import LATEST
from ...text.sanitize import safe_line
from ...text.theme_names import reserved
from ..console import Console, counted
from ..database import start_server
from . import facts, holographic, memory_file, rows, state_db, tables
from .rows import Rules
from .transfer import Transfer, destination

Source = Callable[[Database, Rules, Console, argparse.Namespace], dict[str, Any]]
Read = Callable[[str, Rules], Iterator[tuple[int, str, dict[str, Any]]]]
SHOWN_MAX = 20
CHUNK_BYTES = 1 << 20
REASON_CHARS_MAX = 160
NAME_CHARS_MAX = 60


def bring(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Import rows. Returns 0, or 1 when some were refused. A damaged archive is refused before anything is stored."""
    settings, args.home = load(home), home
    if not args.path and args.source == "state-db":
        args.path = str(home)
    if not args.path:
        raise BadArgument(f"name the PATH of what to import from {args.source}")
    theme = _theme(args.theme, home, settings)
    if args.source == "hermes-memory":
        return facts.bring(home, console, args, theme)
    with closing(Database(settings, home)) as database:
        start_server(database)
        result = SOURCES[args.source](database, Rules(settings, args.theme and theme, theme), console, args)
    # A connection string may have a password.
    path = describe(args.path) if args.source == "hermes-memory-pgvector" and args.path != "-" else args.path
    document = {"source": args.source, "path": path, "theme": args.theme and theme, "dry_run": args.dry_run}
    console.data({**document, **result})
    _summarise(console, result, dry_run=args.dry_run)
    return 1 if result["wrong"] else 0


def from_archive(database: Database, rules: Rules, console: Console, args: argparse.Namespace) -> dict[str, Any]:
    """Bring an archive, or plain JSON lines."""
    with _opened(args.path) as stream:
        total = None
        if stream.seekable():
            with console.busy("checking"):
                total = _check(stream)
        reader = Reader(stream)
        manifest = reader.manifest
        if manifest.get("schema", 0) > LATEST:
            known = f"this release knows schema {LATEST}, and the archive has {manifest['schema']}"
            raise SchemaNotApplied(f"{known}; upgrade this release: {upgrade()}")
        options = {"theme": rules.theme, "dry_run": args.dry_run}
        to = destination(database, rules.settings, manifest, **options)
        transfer = Transfer(database, to)
        lines = reader.lines() if manifest else _plain(reader, rules)
        if manifest:
            total = sum(manifest["rows"].values())
        try:
            transfer.run(_complete(_until_wrong(lines, reader), transfer) if manifest else lines, console, total)
        except KeyboardInterrupt:
            console.say(f"interrupted; {counted(sum(transfer.new.values()), 'new row')} stored; run it again to go on")
            raise
    if manifest and reader.wrong:
        number, reason = reader.wrong[0]
        raise Refused(f"line {number}: {reason}; the rows before it are stored")
    vectors = "none" if not manifest.get("vectors") else "taken" if to.vectors else "other model"
    return _result(transfer, [*reader.wrong, *transfer.wrong], vectors)


def from_rows(
    read: Read, database: Database, rules: Rules, console: Console, args: argparse.Namespace
) -> dict[str, Any]:
    """Bring what `read` finds: the number, kind and columns of each row."""
    to = destination(database, rules.settings, {}, theme=rules.theme, dry_run=args.dry_run)
    transfer = Transfer(database, to)
    wrong: list[tuple[int, str]] = []

    def lines() -> Iterator[Line]:
        for number, kind, row in read(args.path, rules):
            try:
                yield rows.of_kind(kind, number, row, rules)
            except BadArgument as error:
                wrong.append((number, str(error)))

    transfer.run(lines(), console)
    return _result(transfer, [*wrong, *transfer.wrong], "none")


SOURCES: Mapping[str, Source] = {
    "archive": from_archive,
    "state-db": state_db.bring,
    "memory-file": partial(from_rows, memory_file.read),
    "holographic": partial(from_rows, holographic.read),
    "hermes-memory-pgvector": partial(from_rows, tables.read),
}


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        with expanded(path).open("rb") as stream:
            yield stream
    except OSError as error:
        raise BadArgument(f"{path} cannot be read: {error.strerror}") from None


def _check(stream: IO[bytes]) -> int:
    """The number of lines of a file, read to its end and back. Raises Refused that names wrong lines of an archive."""
    reader = Reader(stream)
    if reader.manifest:
        for _ in reader.lines():
            pass
        if reader.wrong:
            named = "; ".join(f"line {number}: {reason}" for number, reason in reader.wrong[:SHOWN_MAX])
            more = f"; and {len(reader.wrong) - SHOWN_MAX:,} more" if len(reader.wrong) > SHOWN_MAX else ""
            raise Refused(f"{named}{more}; nothing is imported")
    stream.seek(0)
    lines = sum(chunk.count(b"\n") for chunk in iter(partial(stream.read, CHUNK_BYTES), b""))
    stream.seek(0)
    return lines


def _until_wrong(lines: Iterator[Line], reader: Reader) -> Iterator[Line]:
    """The rows before the first line that is wrong: a stream cannot be checked before."""
    for line in lines:
        if reader.wrong:
            return
        yield line


def _complete(lines: Iterator[Line], transfer: Transfer) -> Iterator[Line]:
    """The rows that have the fields of their kind; the others are noted as refused."""
    for line in lines:
        try:
            line.check()
        except BadArgument as error:
            transfer.found[line.kind] += 1
            transfer.wrong.append((line.number, str(error)))
        else:
            yield line


def _plain(reader: Reader, rules: Rules) -> Iterator[Line]:
    for line in reader.lines():
        try:
            yield rows.plain(line, rules)
        except BadArgument as error:
            reader.wrong.append((line.number, str(error)))


def _theme(given: str, home: Path, settings: Settings) -> str:
    own = Identity(agent_identity=profile_name(home))
    theme = stored_name(given, settings) if given else home_theme(own, aliases=settings.theme_aliases)
    if reserved(theme):
        raise BadArgument(f"theme {theme[:60]!r} is reserved for one person or room; give another as --theme")
    if not allowed(theme, settings.allowed_themes):
        raise BadArgument(f"theme {theme[:60]!r} is not in allowed_themes; add it there, or give another as --theme")
    return theme


def _result(transfer: Transfer, wrong: list[tuple[int, str]], vectors: str) -> dict[str, Any]:
    found = {kind: {"found": number, "new": transfer.new[kind]} for kind, number in sorted(transfer.found.items())}
    refused = [{"line": number, "reason": reason} for number, reason in sorted(wrong)]
    return {
        "rows": found,
        "erased": transfer.to.erased,
        "in_use": transfer.in_use,
        "vectors": vectors,
        "wrong": refused,
    }


NAMES: dict[str, tuple[str, str]] = {
    "entry": ("entry", "entries"), "past": ("earlier version", "earlier versions"), "turn": ("turn row", "turn rows"),
    "fact": ("fact", "facts"),
}  # fmt: skip


def _summarise(console: Console, result: Mapping[str, Any], *, dry_run: bool) -> None:
    what = "would be new" if dry_run else "new"
    # Of sessions, turns are counted, each of up to two rows.
    for kind, names in (NAMES | ({"turn": ("turn", "turns")} if "sessions" in result else {})).items():
        if kind in result["rows"]:
            number = result["rows"][kind]
            console.say(f"{counted(number['found'], *names)}, {number['new']:,} {what}")
    if not result["rows"] and not result.get("wrong"):
        console.say("nothing is in it")
    for reason, number in result.get("skipped", {}).items():
        console.say(f"{counted(number, 'session')} left out: {reason}")
    if result["erased"]:
        console.say(f"{counted(result['erased'], 'row')} left out: erased here for good")
    if result.get("in_use"):
        named = ", ".join(safe_line(theme, NAME_CHARS_MAX) for theme in result["in_use"][:SHOWN_MAX])
        console.say(f"renamed or linked there, and themes of their own here, which they stay: {named}")
    if result["vectors"] == "other model":
        console.say("its vectors are of another model; agents or `backfill` compute them")
    elif result["vectors"] == "none" and not dry_run and any(found["new"] for found in result["rows"].values()):
        console.say("found by their words at once; agents or `backfill` compute the vectors")
    for wrong in result["wrong"][:SHOWN_MAX]:
        reason = safe_line(wrong["reason"], REASON_CHARS_MAX)
        where = f"line {wrong['line']} is refused: " if wrong["line"] else ""
        console.say(f"hermes-pgvector: {where}{reason}")
    if len(result["wrong"]) > SHOWN_MAX:
        console.say(f"hermes-pgvector: and {len(result['wrong']) - SHOWN_MAX:,} more; --json names all")
    if dry_run:
        console.say("nothing is changed: this was a dry run")
