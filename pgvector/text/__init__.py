"""Pure functions on text: cleaning, normalization, tokens, chunks, sanitizing, times."""

from __future__ import annotations
