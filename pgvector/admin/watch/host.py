"""Whether a host would load the memory of a home: its setting, and what its own Python finds."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...errors import SettingsError
from ...files import expanded
from ...hosts.environment import ACTIVATE
from ...hosts.installation import NAME, PACKAGE, pip_install, replacement
from ...text.sanitize import safe_line
from .. import link
from ..configuration import PROVIDER, active_provider
from .finding import Finding

LOAD_S_MAX = 120.0
REASON_CHARS_MAX = 300
INSTALL = "hermes-pgvector install"


def findings(home: Path, command: str) -> Iterator[Finding]:
    """What keeps the host from using this memory. `command` is the path of its `hermes`; empty: the one on the PATH."""
    try:
        active = active_provider(home)
    except SettingsError as error:
        yield Finding("settings", str(error), "fix it by hand; `hermes config` would overwrite the file")
        return
    if active != PROVIDER:
        yield Finding("provider", f"memory.provider is {safe_line(active, 60) or 'not set'}", ACTIVATE)
        return
    python = python_of(command)
    if python is None:
        found = f"{command} names no Python" if command else "there is no `hermes` command on the PATH"
        yield Finding("host", found, "install hermes-agent, or give: --hermes PATH")
        return
    yield from _loaded(home, python, load(home, python))


def python_of(command: str) -> Path | None:
    """The Python that runs a host; None when it is not found. That of a venv stays a link, which names the venv."""
    if command:
        return link.python_of(expanded(command))
    beside = Path(sys.executable).with_name("hermes")
    # Cron has a short PATH.
    return link.other_python() or link.python_of(beside) or (Path(sys.executable) if find_spec("plugins") else None)


def load(home: Path, python: Path) -> dict[str, Any]:
    """What `load_provider` found in the Python of a host; only `reason` when it could not be run."""
    script = Path(__file__).with_name("load_provider.py")
    try:
        done = subprocess.run(
            [python, "-P", script, PROVIDER], env={**os.environ, "HERMES_HOME": str(home)}, cwd=home,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LOAD_S_MAX, check=False,
        )  # fmt: skip
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"reason": f"it did not answer within {LOAD_S_MAX:g} s"}
    except OSError as error:
        return {"reason": error.strerror or type(error).__name__}
    except (ValueError, IndexError):
        return {
            "reason": safe_line(done.stderr[-REASON_CHARS_MAX:], REASON_CHARS_MAX) or f"exit code {done.returncode}"
        }
    return answer


def _loaded(home: Path, python: Path, answer: dict[str, Any]) -> Iterator[Finding]:
    folder, modules = str(answer.get("folder") or ""), answer.get("modules") or []
    reason = safe_line(str(answer.get("reason") or "the host's log says why"), REASON_CHARS_MAX)
    ours = [module for module in modules if module.startswith(PACKAGE)]
    install = INSTALL if ours else f"{pip_install(python=str(python))}; then: {INSTALL}"
    if folder and not _is_ours(Path(folder)):
        yield Finding("package", f"the host loads another plugin of this name, {folder}", _replace(home, python))
    elif answer.get("available"):
        return
    elif not answer.get("host"):
        yield Finding("host", f"{python} has no working host: {reason}", "install hermes-agent there")
    elif modules and not ours:
        found = f"pip has installed another project of the same name there, {NAME} {answer['version']} of PyPI"
        yield Finding("package", found, _replace(home, python))
    elif not folder:
        place = link.place(home)
        state = f"{place} is a broken link" if place.is_symlink() else f"{place} is missing"
        yield Finding("plugin", f"the host finds no plugin: {state}", install)
    elif "missing packages" in reason:
        yield Finding("package", f"{python}: {reason.partition('; run: ')[0]}", pip_install(python=str(python)))
    else:
        yield Finding("settings", reason, "correct it, then: hermes-pgvector doctor")


def _is_ours(folder: Path) -> bool:
    """Whether a plugin folder is this package, of any version."""
    return (folder / "admin" / "link.py").is_file()


def _replace(home: Path, python: Path) -> str:
    place = link.place(home)
    if place.exists() and not _is_ours(place.resolve()):
        away = shlex.join(["mv", str(place), str(home / "plugin-pgvector-before")])
        return f"{away}; then: {replacement(str(python))}"
    return replacement(str(python))
