"""One conversation: which theme it belongs to, which turns are kept, what is off the record."""

from __future__ import annotations
