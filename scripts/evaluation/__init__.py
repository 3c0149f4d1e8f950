"""Measures recall from outside: turns are stored by the hook, questions are answered by the recall tool."""

from __future__ import annotations
