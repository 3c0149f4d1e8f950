"""What hosts provide outside of hooks: environment, `state.db`, transcripts, source of the installation."""

from __future__ import annotations
