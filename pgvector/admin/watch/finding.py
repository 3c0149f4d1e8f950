"""What `watch` finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Reason: TypeAlias = Literal[
    "settings",
    "provider",
    "host",
    "plugin",
    "package",
    "database",
    "data",
    "schema",
    "embedder",
    "writer",
    "spool",
    "turns",
]
REASONS: tuple[Reason, ...] = get_args(Reason)


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason why a person has to look at the memory, and what to type."""

    reason: Reason
    found: str
    remedy: str
