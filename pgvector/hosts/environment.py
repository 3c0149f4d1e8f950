"""Reads what hosts provide outside the arguments of hooks. Works without a host, too."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal


def hermes_home() -> Path:
    """The HERMES_HOME of this process."""
    try:
        from hermes_constants import get_hermes_home
    except ImportError:
        return Path(os.environ.get("HERMES_HOME") or Path.home() / ".hermes")
    return Path(get_hermes_home())


def running(variable: Literal["HERMES_SESSION_KEY", "HERMES_SESSION_USER_ID"]) -> str:
    """The session key or user of the request in which this call runs; empty where this thread has none."""
    try:
        from gateway.session_context import get_session_env
    except ImportError:
        return ""
    return str(get_session_env(variable) or "")


def scrubber() -> Callable[[str], str]:
    """The function that removes secrets from a text as the host does before it calls a provider.

    Texts of memory files and of the host's record need it to be equal to the texts that hooks get. Get it once for many
    texts: a failing import takes longer than a hook may.
    """
    try:
        from agent import redact
    except ImportError:
        return str
    # `from … import` of a missing name is slow.
    scrub = getattr(redact, "redact_for_egress", None)
    return str if scrub is None else lambda text: str(scrub(text))
