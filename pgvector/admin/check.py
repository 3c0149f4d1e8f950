"""The result of a check, as `doctor` prints it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """What a check found and, unless it is ok, what to do."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""
