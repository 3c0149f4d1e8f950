"""Archives: rows on their way out of one database and into another, as lines of JSON."""

from __future__ import annotations
