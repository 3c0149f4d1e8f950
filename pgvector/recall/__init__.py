"""From a question to hits: vector search, word search, fusion, selection, rendering."""

from __future__ import annotations
