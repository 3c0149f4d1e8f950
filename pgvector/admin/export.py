"""export: write themes, or all, to an archive of JSON lines that `import` reads."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from rich.filesize import decimal as size

from ..errors import BadArgument, PgvectorError
from ..files import new_file, not_written, reason
from ..settings import load
from ..store.archive import reading
from ..store.archive.lines import Writer
from ..store.connection.database import Database
from .console import Console, counted
from .database import start_server, theme_named

STATEMENT_S_MAX = 600.0
PROGRESS_ROWS = 500


def export(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Write an archive from one snapshot of the database. Nothing is left of one that fails. Returns 0."""
    to_stdout = args.path == "-"
    if to_stdout and console.as_json:
        raise BadArgument("--json prints a summary on stdout, so the archive needs a PATH")
    settings = load(home)
    with closing(Database(settings, home, read_only=True)) as database:
        start_server(database)
        with database.connection() as connection:
            database.verify(connection)
            themes = sorted({theme_named(connection, name, settings) for name in args.theme}) or None
        with (
            _target(args.path) as out,
            database.transaction(
                statement_timeout_s=STATEMENT_S_MAX, transaction_isolation="repeatable read"
            ) as connection,
        ):
            manifest = reading.manifest(connection, database.verify, themes, vectors=args.vectors)
            _check_themes(manifest, themes)
            written = _write(reading.lines(connection, manifest, Writer()), manifest, out, console)
    document = {key: manifest[key] for key in ("themes", "rows", "model", "dimensions", "vectors", "schema")}
    console.data({"path": args.path, "bytes": written, **document})
    _report(console, manifest, "stdout" if to_stdout else args.path, written)
    return 0


def _check_themes(manifest: dict[str, Any], themes: list[str] | None) -> None:
    if themes is not None and not any(manifest["rows"].values()):
        raise BadArgument(
            f"nothing is stored of theme {', '.join(theme[:60] for theme in themes)}; see: hermes-pgvector themes"
        )


def _write(lines: Iterator[bytes], manifest: dict[str, Any], out: IO[bytes], console: Console) -> int:
    written = 0
    with console.progress() as progress:
        task = progress.add_task("rows", total=sum(manifest["rows"].values()))
        for number, line in enumerate(lines):
            out.write(line)
            written += len(line)
            if number % PROGRESS_ROWS == 0:
                progress.update(task, completed=number)
        progress.update(task, completed=sum(manifest["rows"].values()))
        out.flush()
    return written


@contextmanager
def _target(path: str) -> Iterator[IO[bytes]]:
    """Where the archive is written: stdout, or a private file that gets its name when it is complete."""
    if path == "-":
        if sys.__stdout__ is None:  # the command line has put the null device in its place
            raise BadArgument("stdout is closed; give a PATH for the archive")
        try:
            yield sys.stdout.buffer
        except BrokenPipeError:
            raise
        except OSError as error:
            raise PgvectorError(f"stdout cannot be written: {reason(error)}; the archive is not complete") from None
        return
    target = new_file(path)
    part = target.with_name(f".{target.name}.{uuid4().hex[:8]}")
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BadArgument(not_written(target, error)) from None
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            os.fsync(fd)
        part.replace(target)
    except OSError as error:
        raise PgvectorError(f"{not_written(target, error)}; nothing is left of it") from None
    finally:
        part.unlink(missing_ok=True)


def _report(console: Console, manifest: dict[str, Any], path: str, written: int) -> None:
    rows = manifest["rows"]
    parts = [
        counted(rows["entry"], "entry", "entries"), counted(rows["turn"], "turn"), counted(rows["fact"], "fact"),
        counted(rows["past"], "earlier version"),
    ]  # fmt: skip
    vectors = f"with the vectors of {manifest['model']}" if manifest["vectors"] else "without vectors"
    console.say(f"exported {', '.join(parts)}, {vectors}, to {path} ({size(written)})")
    if path != "stdout":
        console.say("whoever reads the file reads the memory: it has mode 0600, keep it so")
