"""The check of what was said before the memory was there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...errors import PgvectorError
from ...files import reason
from ...settings import Settings
from ..check import Check, failed
from ..console import counted
from ..database import connection
from ..host_record import IMPORT_SESSIONS, STATEMENT_S_MAX, past_sessions
from ..overview import ABSENT, Overview

NAME = "past sessions"


def past(settings: Settings, home: Path, found: Overview) -> Iterator[Check]:
    """Whether the host has sessions from before its memory, which can be imported."""
    try:
        if found.schema:
            with connection(home, STATEMENT_S_MAX) as opened:
                number = past_sessions(settings, home, opened)
        else:
            number = past_sessions(settings, home, None) if found.problem == ABSENT else 0
    except OSError as error:
        yield Check(NAME, "warning", f"{home / 'state.db'}: {reason(error)}", "run doctor again")
    except PgvectorError as error:
        yield failed(NAME, str(error))
    else:
        if number:
            what = f"{counted(number, 'session')} of the host from before its memory can be stored"
            when = "" if found.schema else "after the first session, "
            yield Check(NAME, "ok", what, f"to store them: {when}{IMPORT_SESSIONS}")
