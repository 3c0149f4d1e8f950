"""One module per job of an operator."""

from __future__ import annotations

# Exit code of a command that its operator ended.
INTERRUPTED = 130
