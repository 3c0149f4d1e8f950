"""SQL statements, one file a statement."""

from __future__ import annotations
