"""What a host says outside of its hooks: environment, `state.db`, transcripts, source of the installation."""

from __future__ import annotations
