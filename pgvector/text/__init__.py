"""Pure functions on text: cleaning, tokens, chunks, sanitizing, times, checks of settings, and what is kept."""

from __future__ import annotations
