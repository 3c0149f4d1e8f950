"""What the host tells outside the arguments of its hooks. Works without a host, too."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def hermes_home() -> Path:
    """The home of this process as the host sees it."""
    try:
        from hermes_constants import get_hermes_home
    except ImportError:
        return Path(os.environ.get("HERMES_HOME") or Path.home() / ".hermes")
    return Path(get_hermes_home())


def running_session_key() -> str | None:
    """The session key of the request in which this call runs; empty on threads the host does not tell."""
    try:
        from gateway.session_context import get_session_env
    except ImportError:
        return None
    return get_session_env("HERMES_SESSION_KEY") or None


def running_user() -> str:
    """The id of who sent the message in whose turn this call runs; empty on threads the host does not tell."""
    try:
        from gateway.session_context import get_session_env
    except ImportError:
        return ""
    return str(get_session_env("HERMES_SESSION_USER_ID") or "")


def scrubber() -> Callable[[str], str]:
    """What takes the secrets out of a text as the host does for its providers; leaves it alone where the host does.

    What is read from the memory files must be scrubbed in the same way, or it would differ from what was mirrored. Ask
    once for many texts: to look for a module that is not there takes longer than a hook may.
    """
    try:
        from agent import redact
    except ImportError:
        return str
    # To import a name that is not there takes as long as all the rest.
    scrub = getattr(redact, "redact_for_egress", None)
    return str if scrub is None else lambda text: str(scrub(text))
