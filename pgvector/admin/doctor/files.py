"""Checks of the home's files on this host: folders, spools, writers, dead letters, disk space."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from ...files import LastingMarks
from ...hosts.config import ENV_PREFIX, config_file, env_values, environment, host_section, read_config
from ...mirror.home import Home
from ...model import now
from ...outbox.dead_letters import DeadLetters
from ...outbox.inspection import Process, total
from ...outbox.inspection import processes as processes_of
from ...session.off_record_marks import OFF_RECORD_MAX, OffRecordMarks
from ...settings import IN_HOST_CONFIG, Settings
from ...text.sanitize import safe_line
from .. import processes
from ..check import Check
from ..console import counted
from ..disk import disk, existing

WAIT_S_MAX = 600
REASONS_SHOWN = 3
REASON_CHARS_MAX = 240
NAMES_SHOWN, NAME_CHARS_MAX = 5, 60


def names_of_settings(home: Path, settings: Settings) -> Check:
    """Whether each name in the places of settings is one: a mistyped one is ignored. Raises SettingsError."""
    saved = (
        (str(config_file(home)), read_config(home)),
        (IN_HOST_CONFIG, host_section(home, "memory").get("pgvector")),
    )
    wrong = [
        _near(str(key), place, str(key))
        for place, values in saved
        for key in values or {}
        if key not in Settings.model_fields
    ]
    for name in sorted(environment(home).keys() - {settings.embed_key_env, settings.rerank_key_env}):
        key = name.removeprefix(ENV_PREFIX).lower()
        # Some variables are no settings.
        if key != name.lower() and key not in Settings.model_fields and (_nearest(key, 0.8) or _swapped(key)):
            wrong.append(_near(name, "the environment or .env", key))
    if not wrong:
        return Check("settings", "ok", "valid")
    found = f"{counted(len(wrong), 'name')} of no setting, ignored: {', '.join(wrong[:NAMES_SHOWN])}"
    return Check("settings", "warning", found, "correct or remove it; the names: hermes-pgvector settings list --all")


def exported_otherwise(home: Path) -> Iterator[Check]:
    """Variables that are exported with another value than `.env` has, which hosts prefer. Raises SettingsError."""
    stored = env_values(home)
    names = [
        name
        for name in sorted(stored)
        if name.startswith(ENV_PREFIX) and stored[name] and os.environ.get(name, "") not in ("", stored[name])
    ]
    if names:
        shown = safe_line(", ".join(names[:NAMES_SHOWN]), NAMES_SHOWN * NAME_CHARS_MAX)
        found = (
            f"other values are exported than .env has of {shown}: hosts take those of .env, this command the exported"
        )
        yield Check(
            "environment", "warning", found, f"remove one of the two, in this shell by: unset {' '.join(names)}"
        )


def _near(name: str, place: str, key: str) -> str:
    meant = "".join(f" (did you mean {near}?)" for near in _nearest(key))
    return f"{safe_line(name, NAME_CHARS_MAX)} in {place}{meant}"


def _nearest(key: str, cutoff: float = 0.6) -> list[str]:
    return get_close_matches(key, Settings.model_fields, 1, cutoff)


def _swapped(key: str) -> bool:
    """Whether it has the letters of a setting in another order, such as `dns`."""
    return any(sorted(key) == sorted(name) for name in Settings.model_fields)


def local_files(home: Home, settings: Settings) -> Iterator[Check]:
    """Whether folders can be written, events are stored in time, and there is space on the disk."""
    for name, folder, remedy in (
        ("home", home.state, "give the user of the agent write permission"),
        ("spool folder", home.spool, "set spool_dir to a writable folder; until then events are held in memory only"),
    ):
        if os.access(existing(folder), os.W_OK | os.X_OK):
            yield Check(name, "ok", f"{folder} is writable")
        else:
            yield Check(name, "problem", f"{folder} is not writable", remedy)
    running = processes_of(home.spool)
    yield _spools(running, settings)
    troubled = processes.troubled(running, settings.stuck_after_s)
    yield from troubled or [Check("writer", "ok", processes.summary(running))]
    yield _dead_letters(home)
    yield _off_record(home)
    yield disk("disk", home.spool)


def _spools(running: list[Process], settings: Settings) -> Check:
    waiting = total(process.waiting for process in running)
    found = processes.waiting_line(waiting)
    if any(2 * process.waiting.bytes > settings.spool_max_mb << 20 for process in running):
        remedy = "bring the database back, or raise spool_max_mb"
        return Check("spool", "problem", f"{found}; the spool of a process is more than half full", remedy)
    if waiting.oldest and (now() - waiting.oldest).total_seconds() > WAIT_S_MAX:
        remedy = (
            "a running session stores them when the database answers; to store them now: hermes-pgvector spool flush"
        )
        return Check("spool", "warning", found, remedy)
    return Check("spool", "ok", found)


def _dead_letters(home: Home) -> Check:
    reasons = Counter(letter.reason for letter in DeadLetters(home.state))
    if not reasons:
        return Check("dead letters", "ok", "none")
    shown = "; ".join(safe_line(reason, REASON_CHARS_MAX) for reason, _ in reasons.most_common(REASONS_SHOWN))
    remedy = "fix the reason, then: hermes-pgvector spool retry --all; to look at them: hermes-pgvector spool list"
    return Check("dead letters", "warning", f"{counted(reasons.total(), 'event')}: {shown}", remedy)


def _off_record(home: Home) -> Check:
    """Whether more sessions can be marked as off the record."""
    kept = OffRecordMarks(home.path, home.state)
    marks = kept.names()
    found = f"{counted(len(marks - {LastingMarks.ALL}), 'mark')} of sessions, of at most {OFF_RECORD_MAX:,}"
    remedy = f"end the sessions that are off the record, then delete the files of old ones in {kept.folder}"
    if LastingMarks.ALL in marks:
        return Check("off the record", "problem", f"{found}: no turn of this home is stored", f"{remedy}, and `all`")
    low = len(marks) > OFF_RECORD_MAX * 4 // 5
    return Check("off the record", "warning" if low else "ok", found, remedy if low else "")
