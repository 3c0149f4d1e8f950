"""preview: the memories that an agent of a theme would get before a message, by the code that agents run."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import BadArgument
from ...facts.tokens import tokens_of
from ...model import RecallRequest, Scope
from ...recall.render import DEGRADED
from ...runtime import Runtime
from ...session.off_record import notice
from ...settings import Settings, load
from ...text.cleaning import clean
from ...text.sanitize import safe_line
from ...text.theme_names import DEFAULT_THEME
from ..console import ATTENTION, Console, counted
from ..database import REASON_CHARS_MAX, in_full, permitted, ready
from .adding import given_text

WARM_S_MAX = 20.0


def preview(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Print the block, and on stderr its size or why there is none. Returns 0, or 3 when the recall is degraded."""
    settings = load(home)
    text, theme = given_text(args.text, settings), permitted(args.theme, home, settings)
    if not text.strip():
        raise BadArgument("the message is empty; give what a person would write")
    with warm(settings, home, console) as runtime:
        block, memories = before_turn(runtime, theme, text, clean(args.session))
        reason = "" if block else why_none(runtime, text)
        degraded = why_degraded(runtime, block)
        if runtime.prefetch.enabled and isinstance(problem := runtime.compatibility.usable(), str):
            degraded = problem
    tokens = tokens_of(block)
    console.data(
        {
            "text": text,
            "theme": theme,
            "session": args.session,
            "block": block,
            "memories": memories,
            "characters": len(block),
            "tokens_max": tokens,
            "reason": reason,
            "degraded": degraded,
        }
    )
    if block:
        console.show(block)
        console.say(f"{counted(memories, 'memory', 'memories')}, {len(block):,} characters, at most {tokens:,} tokens")
    else:
        console.say(f"the agent gets nothing: {reason or 'nothing is related to the message'}")
    if degraded:
        console.say(f"degraded: {safe_line(degraded, REASON_CHARS_MAX)}")
    return ATTENTION if degraded else 0


def before_turn(runtime: Runtime, theme: str, text: str, session: str = "") -> tuple[str, int]:
    """The block as the provider makes it, and how many memories are in it, without facts."""
    if switched := notice(text, always_off=runtime.settings.off_record):
        return switched, 0
    if runtime.context.capture.why_no_recall(text) or not (runtime.prefetch.enabled or runtime.settings.injects_facts):
        return "", 0
    return runtime.prefetch.text_before_turn(theme, text, session, own=runtime.own(theme))


def why_degraded(runtime: Runtime, block: str) -> str:
    """Why the recall of a block was degraded, as the block says it, in full; empty when it does not."""
    _, mark, reason = block.rpartition(f"\n{DEGRADED}")
    return in_full(runtime, reason.removesuffix(")")) if mark else ""


def why_none(runtime: Runtime, text: str) -> str:
    """Why nothing is recalled before a message; empty when memories are."""
    if why := runtime.context.capture.why_no_recall(text):
        return why
    settings = runtime.settings
    if settings.recall_mode == "tools":
        return "recall_mode is tools"
    return "" if runtime.prefetch.enabled else "prefetch_limit is 0"


@contextmanager
def warm(settings: Settings, home: Path, console: Console) -> Iterator[Runtime]:
    """The runtime of a home in which the first recall, which loads the model, is over, as in a running agent."""
    with ready(settings, home, console) as runtime:
        with console.busy("starting"):
            scope = Scope(DEFAULT_THEME, (DEFAULT_THEME,))
            runtime.recall("entries", RecallRequest(query="start", scope=scope, limit=1, budget_s=WARM_S_MAX))
        yield runtime
