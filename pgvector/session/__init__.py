"""One conversation: its theme, the turns that are stored, and what is off the record."""

from __future__ import annotations
