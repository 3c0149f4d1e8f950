"""The arguments of the commands of this folder. The hosts import this, so it imports nothing of the others."""

from __future__ import annotations

from ..command_parser import BIGINT_MAX, ROLES, TIME_HELP, Commands, Filled, Once, add, number, stored_text

LIMIT_MAX = 1000


def add_commands(commands: Commands) -> None:
    """Add the commands."""
    _add_lists(commands)
    _add_rows(commands)
    text = "search as you type, in the terminal; open rows, forget entries, take changes back"
    browse = add(commands, "browse", text, "look.browse:browse")
    browse.add_argument(
        "--theme", action=Once, default="", metavar="T", help="search as this theme (default: that of this home)"
    )
    text = "print the memories that an agent would get before this message"
    preview = add(commands, "preview", text, "look.preview:preview")
    preview.add_argument("text", metavar="TEXT", help="the message of a person; - reads the standard input")
    preview.add_argument(
        "--theme", action=Once, default="", metavar="T", help="the theme of the agent (default: that of this home)"
    )
    text = "a session of this home: what stands in its context is left out"
    preview.add_argument("--session", default="", metavar="ID", help=text)
    stats = add(commands, "stats", "show how the memory grows, and how many tokens a turn gets", "look.stats:stats")
    stats.add_argument("--days", type=number(1, 366), default=30, metavar="N", help="the last N days (default 30)")
    stats.add_argument("--theme", action=Once, default="", metavar="T", help="only this theme (default: all)")
    stats.add_argument("--themes", type=number(1, 100), default=10, metavar="N", help="list the N largest (default 10)")
    text = "show the plot alone, or with FILE write it there as a PNG (needs the extra `plot`)"
    stats.add_argument("--plot", nargs="?", const="", metavar="FILE", help=text)
    text = "recall for the newest N questions, and count the tokens (default 10; 0: none)"
    stats.add_argument("--questions", type=number(0, 100), default=10, metavar="N", help=text)


def _add_lists(commands: Commands) -> None:
    themes = add(commands, "themes", "list the themes with their rows, sizes, times and homes", "look.themes:themes")
    text = "the N largest (default 50)"
    themes.add_argument("--limit", type=number(1, LIMIT_MAX), default=50, metavar="N", help=text)
    sessions = add(commands, "sessions", "list the sessions of a theme, the newest first", "look.themes:sessions")
    sessions.add_argument(
        "--theme", action=Once, default="", metavar="T", help="the theme (default: that of this home)"
    )
    text = "at most N (default 20)"
    sessions.add_argument("--limit", type=number(1, LIMIT_MAX), default=20, metavar="N", help=text)
    sessions.add_argument("--offset", type=number(0, BIGINT_MAX), default=0, metavar="N", help="leave out the newest N")
    rows = add(commands, "list", "list entries and turns, the newest first", "look.listing:show_all")
    rows.add_argument("--theme", action=Once, default="", metavar="T", help="only of this theme (default: all)")
    rows.add_argument("--session", default="", metavar="ID", help="only of this session")
    kind = rows.add_mutually_exclusive_group()
    kind.add_argument("--kind", choices=("memory", "turns", "both"), default="both", help="what to list (default both)")
    kind.add_argument("--target", choices=("memory", "user"), default="", help="only entries of this file")
    kind.add_argument("--role", choices=ROLES, default="", help="only turns of this side")
    text = "only entries with this tag; give it again for others"
    kind.add_argument("--tag", action="append", default=[], metavar="TAG", help=text)
    text = "only of this source, such as remember, file or conversation"
    rows.add_argument("--source", default="", metavar="S", help=text)
    rows.add_argument("--text", default="", metavar="TEXT", help="only rows that contain this text, in any case")
    rows.add_argument("--since", default="", metavar="TIME", help=f"nothing older than {TIME_HELP}")
    rows.add_argument("--until", default="", metavar="TIME", help="nothing newer; a date includes the whole day")
    rows.add_argument("--limit", type=number(1, LIMIT_MAX), default=20, metavar="N", help="at most N rows (default 20)")
    text = "only what follows this place, which the page before has printed"
    rows.add_argument("--after", default="", metavar="PLACE", help=text)


def _add_rows(commands: Commands) -> None:
    show = add(commands, "show", "show an entry or a turn, its origin, neighbours and history", "look.row:show")
    show.add_argument("id", type=number(1, BIGINT_MAX), metavar="ID", help="its id, as `list` and `search` show it")
    show.add_argument("--turn", action="store_true", help="the id is that of a turn")
    text = "its theme (default: that of the only row with the id)"
    show.add_argument("--theme", default="", metavar="T", help=text)
    text = "turns to show before it and after it (default 2)"
    show.add_argument("--context", type=number(0, 20), default=2, metavar="N", help=text)
    entry = add(commands, "add", "add an entry, as an agent does by remember", "look.adding:add")
    text = "the text; - reads the standard input"
    entry.add_argument("text", type=stored_text, metavar="TEXT", help=text)
    text = "the theme that gets it (default: that of this home)"
    entry.add_argument("--theme", action=Filled, default="", metavar="T", help=text)
    text = "like a line of MEMORY.md (memory, the default) or of USER.md (user)"
    entry.add_argument("--target", choices=("memory", "user"), default="memory", help=text)
    entry.add_argument("--tag", action="append", default=[], metavar="TAG", help="a tag; give it again for others")
    text = "a value to keep with it; give it again for others"
    entry.add_argument("--metadata", action="append", default=[], metavar="K=V", help=text)
    text = "when it expires: a time span (14d), a date, or never (default)"
    entry.add_argument("--expires", action=Filled, default="", metavar="TIME", help=text)
    entry.add_argument("--sync", action="store_true", help="wait until it is stored")
