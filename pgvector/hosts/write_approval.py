"""The host's gate for what an agent writes into its memory, `memory.write_approval`."""

from __future__ import annotations

import logging
from typing import Any, Literal, TypeAlias

from .environment import host_module

Gate: TypeAlias = Literal["allowed", "denied", "waits"]

log = logging.getLogger("hermes.pgvector")

# What the hosts take for true.
_ON = frozenset({"on", "true", "yes", "1", "approve", "enabled"})
_ERRORS = (AttributeError, ImportError, OSError, RuntimeError, TypeError, ValueError)


def is_on(value: object) -> bool:
    """Whether a value of `memory.write_approval` turns the gate on, as hosts read it; unset, it is off."""
    return value.strip().lower() in _ON if isinstance(value, str) else value is True


def is_on_in_host() -> bool:
    """Whether the gate is on in the host of this process, which may have another home; false without a host."""
    gate: Any = host_module("tools.write_approval")
    try:
        return gate is not None and bool(gate.write_approval_enabled("memory"))
    except _ERRORS as error:
        log.warning("the host's write approval failed with %s: a write waits", type(error).__name__)
        return True


def ask(summary: str, detail: str) -> Gate:
    """Whether a write may be made though the gate is on: the host asks the person at its terminal, if there is one."""
    gate: Any = host_module("tools.write_approval")
    if gate is None or not is_on_in_host():
        return "waits"
    try:
        decision = gate.evaluate_gate("memory", inline_summary=summary, inline_detail=detail)
        return "allowed" if decision.allow else "denied" if decision.blocked else "waits"
    except _ERRORS as error:
        log.warning("the host's write approval failed with %s: a write waits", type(error).__name__)
        return "waits"
