"""The arguments of `export`, `import`, `backup` and `restore`. The hosts import this."""

from __future__ import annotations

from ..command_parser import Commands, Filled, add, number

SOURCES = {
    "archive": "what `export` wrote, or plain JSON lines (the default)",
    "memory-file": "a MEMORY.md or USER.md",
    "hermes-memory": "its memory.db",
    "hermes-memory-pgvector": "a connection string of that package's database, up to 1.0",
    "holographic": "its memory_store.db",
    "state-db": "a host's record of its sessions",
}


def add_commands(commands: Commands) -> None:
    """Add the commands."""
    export = add(commands, "export", "write the memory to an archive that `import` reads", "export:export")
    export.add_argument("path", metavar="PATH", help="the new file, readable by you only; - writes to stdout")
    text = "only this theme; give it again for others (default: all)"
    export.add_argument("--theme", action=Filled, default=[], metavar="T", help=text)
    text = "leave the vectors out: a quarter of the size, and they are computed again after the import"
    export.add_argument("--no-vectors", dest="vectors", action="store_false", help=text)
    bring = add(commands, "import", "bring in an archive, or the memory of another package", "imports.command:bring")
    text = "where it is, which is only read; - reads an archive from stdin (state-db: this home if left out)"
    bring.add_argument("path", nargs="?", default="", metavar="PATH", help=text)
    text = "what it is: " + "; ".join(f"{name}: {what}" for name, what in SOURCES.items())
    bring.add_argument("--from", dest="source", default="archive", choices=tuple(SOURCES), help=text)
    text = "the theme for all of it (default: its own themes where it has some, else that of this home)"
    bring.add_argument("--theme", action=Filled, default="", metavar="T", help=text)
    bring.add_argument("--dry-run", action="store_true", help="show what would be new, and change nothing")
    backup = add(commands, "backup", "write the database of the embedded server to a file", "backup:backup")
    backup.add_argument("path", metavar="PATH", help="the new file, readable by you only")
    text = "replace the database of the embedded server by a backup of it"
    restore = add(commands, "restore", text, "backup:restore")
    restore.add_argument("path", metavar="PATH", help="the file that `backup` or `hermes backup` wrote")
    restore.add_argument("--yes", action="store_true", help="replace what is there without a question")
    for command in (backup, restore):
        text = "seconds that it may take (default 3600)"
        command.add_argument("--wait", type=number(1), default=3600, metavar="S", help=text)
