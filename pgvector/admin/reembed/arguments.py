"""The arguments of `reembed`. The hosts import this, so it imports nothing of the others."""

from __future__ import annotations

from ..command_parser import Commands, Filled, add, add_administrator, number


def add_commands(commands: Commands) -> None:
    """Add the command."""
    text = "change the embedding model while agents go on, as the database's administrator"
    reembed = add(commands, "reembed", text, "reembed.command:reembed")
    reembed.add_argument("--model", action=Filled, metavar="NAME", help="the new model")
    text = "the endpoint that serves it; empty: the bundled model (default: the setting)"
    reembed.add_argument("--url", metavar="URL", help=text)
    text = "the length of its vectors (default: as it answers)"
    reembed.add_argument("--dimensions", type=number(1, 4000), default=0, metavar="N", help=text)
    add_administrator(reembed)
    reembed.add_argument(
        "--batch", type=number(1, 512), metavar="N", help="texts in one request (default: the setting)"
    )
    reembed.add_argument("--dry-run", action="store_true", help="show the plan, and change nothing")
    reembed.add_argument("--yes", action="store_true", help="ask no question")
    text = "go on beside agents of an earlier release, and with a comparison that failed"
    reembed.add_argument("--force", action="store_true", help=text)
    reembed.add_argument(
        "--abandon", action="store_true", help="drop what an unfinished run has made, and keep the model"
    )
