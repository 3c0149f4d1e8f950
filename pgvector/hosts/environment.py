"""Reads what hosts provide outside the arguments of hooks. Works without a host, too."""

from __future__ import annotations

import functools
import importlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import tzinfo
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from ..errors import SettingsError

# Turns the memory on, as a host does it.
ACTIVATE = "hermes config set memory.provider pgvector"
# A host whose process has one of them does not follow `hermes profile use`, nor do the commands that its agents type.
_SUPERVISED = ("HERMES_SUPERVISED_CHILD", "HERMES_S6_SUPERVISED_CHILD", "HERMES_GATEWAY_EXTERNAL_SUPERVISOR")
# Hosts take no other name of a profile.
_PROFILE = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@functools.cache
def host_module(name: str) -> ModuleType | None:
    """A module of the host; None when it cannot be imported.

    It is looked for once, because a failing import takes longer than a hook may. What is installed into the host while
    it runs is found by its next process.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def hermes_home() -> Path:
    """The HERMES_HOME of this process."""
    constants: Any = host_module("hermes_constants")
    if constants is None:
        return process_home(os.environ)
    return Path(constants.get_hermes_home())


def shell_home() -> tuple[Path, str]:
    """The HERMES_HOME that the command `hermes` uses, and the profile of `hermes profile use` that made it so, if any.

    Raises SettingsError when that profile has no folder.
    """
    home, root = _home_and_root()
    if home.parent.name == "profiles" or any(os.environ.get(name) for name in _SUPERVISED):
        return home, ""
    found = _in_use(root)
    return (home, "") if found == root else (found, found.name)


def leads_to(home: Path) -> bool:
    """Whether a command that names no home uses this one, in the shell that this process was started from."""
    with suppress(SettingsError, RuntimeError):
        # The host has set HERMES_HOME, perhaps by its option -p.
        hosted = "hermes_cli.main" in sys.modules
        return home == (_in_use(_home_and_root()[1]) if hosted else shell_home()[0]).expanduser().resolve()
    return False


def typed(text: str, home: Path) -> str:
    """A text for an operator whose commands name this home, where they would use another one in the same shell."""
    if leads_to(home):
        return text
    ours = text.replace(ACTIVATE, "hermes-pgvector settings on")
    given = f"hermes-pgvector --home {shlex.quote(str(home))} "
    return re.sub("hermes-pgvector (?!--home )", lambda _: given, ours)


def _home_and_root() -> tuple[Path, Path]:
    """The HERMES_HOME of the process, and the folder above the profiles."""
    constants: Any = host_module("hermes_constants")
    home = process_home(os.environ) if constants is None else Path(constants.get_process_hermes_home())
    return home, _root_of(home.expanduser())


def _root_of(home: Path) -> Path:
    """The folder above the profiles, for a home that is it or one of them, perhaps as a link to another disk."""
    usual = Path(os.path.expanduser("~/.hermes")).resolve()
    if home.resolve().is_relative_to(usual):
        return usual
    return home.parent.parent if home.parent.name == "profiles" else home


def _in_use(root: Path) -> Path:
    """The home of the profile that is in use: the folder above the profiles for the default one."""
    name = _active_profile(root)
    if name in ("", "default"):
        return root
    found = root / "profiles" / name
    if not _PROFILE.fullmatch(name) or not found.is_dir():
        raise SettingsError(
            f"the profile {name[:64]!r}, which {root / 'active_profile'} names, does not exist; "
            "run: hermes profile use default; or name another home with --home"
        )
    return found


def _active_profile(root: Path) -> str:
    try:
        return (root / "active_profile").read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError):
        return ""  # as hosts do


def process_home(environ: Mapping[str, str]) -> Path:
    """The HERMES_HOME of the process with this environment, not that of the profile that it serves now.

    Raises RuntimeError when the user has no home folder.
    """
    return Path(environ.get("HERMES_HOME") or Path.home() / ".hermes")


def profile_name(home: Path) -> str:
    """The profile of a home, as the hosts name it."""
    named = home = home.resolve()
    with suppress(SettingsError, RuntimeError, OSError):
        # Hosts take a link to a home for what it stands in. A gateway serves the profiles beside its home, too.
        used = shell_home()[0].expanduser()
        folders = chain([used], (_root_of(used) / "profiles").glob("*"))
        named = next((folder for folder in folders if folder.resolve() == home), home)
    root = _root_of(named).resolve()
    if home == root:
        return "default"
    return home.name if home.parent == root / "profiles" and _PROFILE.fullmatch(home.name) else "custom"


def working_folder(platform: str, given: str = "") -> Path | None:
    """The folder that an agent works in: the one that its host has `given`, else for an agent in a terminal the host's.

    None for an agent of a gateway, which serves many people from one folder, and when the folder cannot be found.
    """
    if not given and platform not in ("cli", "tui"):
        return None
    cwd: Any = host_module("agent.runtime_cwd")
    try:
        # A folder that was deleted, and one that the host refuses to name, raise errors.
        if given:
            return Path(given).expanduser()
        return Path(cwd.resolve_agent_cwd() if cwd else os.getcwd())
    except (OSError, RuntimeError, ValueError, AttributeError):
        return None


def running(variable: Literal["HERMES_SESSION_KEY", "HERMES_SESSION_USER_ID"]) -> str:
    """The session key or user of the request in which this call runs; empty where this thread has none."""
    # Not imported: a process that runs requests has imported it, and elsewhere its package takes 0.1 s to import.
    module = sys.modules.get("gateway.session_context")
    read: Callable[[str], Any] | None = getattr(module, "get_session_env", None)
    return "" if read is None else str(read(variable) or "")


def author_now(of_agent: str, otherwise: str) -> str:
    """The id of who wrote the message that the running request answers; `otherwise` where there is no request.

    It is the person for whom the host made the agent: a message that waited in a room runs in the request of the one
    before it, which may be by somebody else.
    """
    user = running("HERMES_SESSION_USER_ID")
    return (of_agent or user) if user else otherwise


def in_gateway() -> bool:
    """Whether this process is a gateway, which has no terminal. The terminal of one host imports its module, too."""
    # `python -m gateway.run` has it as the main module, and may have a second copy, which runs nothing.
    for name in ("gateway.run", "__main__"):
        gateway: Callable[[], object] | None = getattr(sys.modules.get(name), "_gateway_runner_ref", None)
        if gateway is not None and gateway() is not None:
            return True
    return False


def user_zone() -> tzinfo | None:
    """The time zone that the host is set to; None is that of this machine."""
    read: Callable[[], object] | None = getattr(host_module("hermes_time"), "get_timezone", None)
    zone = None if read is None else read()
    return zone if isinstance(zone, tzinfo) else None


def scrubber() -> Callable[[str], str]:
    """The function that removes secrets from a text as the host does before it calls a provider.

    Texts of memory files and of the host's record need it to be equal to the texts that hooks get.
    """
    return _redaction("redact_for_egress")


def recorded_answer(answer: str) -> str:
    """An answer as the host records it, without secrets, so that a replay of the record has the same text."""
    return _redaction("redact_sensitive_text")(answer)


def _redaction(name: str) -> Callable[[str], str]:
    scrub: Callable[[str], object] | None = getattr(host_module("agent.redact"), name, None)
    return str if scrub is None else lambda text: str(scrub(text))
