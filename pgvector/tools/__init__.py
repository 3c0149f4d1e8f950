"""The tools of the agent: schemas, arguments, calls."""

from __future__ import annotations
