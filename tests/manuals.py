"""The code blocks of the manuals, and the commands in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(block: str) -> list[str]:
    """The commands of a shell block: a line with those that continue it; without lines that are comments alone."""
    found = re.findall(r"(?:.*\\\n)*.*\S.*", block)
    return [command for command in found if not command.startswith("#")]
