"""How well the memory recalls, measured from outside: in through the hook, out through the tool."""

from __future__ import annotations
