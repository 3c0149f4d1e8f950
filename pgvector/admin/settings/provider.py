"""settings on and settings off: whether the host uses this memory in a home."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...errors import SettingsError
from ..configuration import PROVIDER, activate, active_provider, not_saved
from ..console import Console
from ..link import change as link


def turn_on(home: Path, console: Console, args: argparse.Namespace) -> int:  # noqa: ARG001
    """The `settings on` command."""
    link(home)
    return _use(home, console, PROVIDER)


def turn_off(home: Path, console: Console, args: argparse.Namespace) -> int:  # noqa: ARG001
    """The `settings off` command. Another provider is left alone."""
    if active_provider(home) not in (PROVIDER, ""):
        raise SettingsError(f"memory.provider of {home / 'config.yaml'} is {active_provider(home)}, not {PROVIDER}")
    return _use(home, console, "")


def _use(home: Path, console: Console, provider: str) -> int:
    if active_provider(home) != provider and not (activate(home, {}, provider) and active_provider(home) == provider):
        raise not_saved(home, provider)
    console.data({"home": str(home), "provider": provider})
    state = "on" if provider else "off"
    console.show(f"the memory is {state} in {home}")
    console.say("running sessions go on as they are; restart a gateway: hermes gateway restart")
    return 0
