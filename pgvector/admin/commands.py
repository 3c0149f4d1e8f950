"""The commands and their arguments. The hosts import this: a command's own module is imported when it runs."""

from __future__ import annotations

import argparse

from .command_groups import group
from .command_parser import (
    BIGINT_MAX,
    COMMAND,
    TIME_HELP,
    Commands,
    Filled,
    Once,
    Parser,
    add,
    add_administrator,
    add_common,
    number,
    stored_text,
)
from .erase.arguments import add_commands as add_erase
from .grants.arguments import add_commands as add_grants
from .imports.arguments import add_commands as add_imports
from .look.arguments import add_commands as add_looks
from .mend.arguments import add_commands as add_mends
from .mend.arguments import add_quarantine
from .reembed.arguments import add_commands as add_reembed
from .settings.arguments import add_commands as add_settings
from .web.arguments import add_commands as add_web

TARGET_HELP = "only entries of MEMORY.md (memory) or of USER.md (user)"


def add_commands(parser: Parser) -> None:
    """Add the options of all commands, and the commands, to a parser."""
    # The prefix keeps the names apart from those of the host.
    parser.set_defaults(pgvector_home=None, pgvector_json=False, pgvector_parser=parser)
    parser.set_defaults(pgvector_job=None, pgvector_command=parser)
    add_common(parser)
    commands = parser.add_subparsers(metavar=COMMAND, title="commands")
    _add_installation(commands)
    status = add(commands, "status", "show the database, what is stored, and what waits on this host", "status:status")
    status.add_argument("--themes", type=number(0), default=20, metavar="N", help="list the N largest (default 20)")
    add_settings(commands)
    _add_search(commands)
    doctor = add(commands, "doctor", "check everything and print a remedy for each problem", "doctor.report:doctor")
    doctor.add_argument(
        "--canary", action="store_true", help="also store, recall and remove an entry, as an agent does"
    )
    _add_watch(commands)
    _add_spool(commands)
    _add_policy(commands)
    _add_maintenance(commands)
    add_reembed(commands)
    _add_files(commands)
    add_imports(commands)
    _add_history(commands)
    _add_facts(commands)
    add_looks(commands)
    add_mends(commands)
    add_quarantine(commands)
    add_erase(commands)
    add_grants(commands)
    _add_person(commands)
    _add_mcp(commands)
    add_web(commands)
    add(commands, "version", "show the version", "console:version")
    group(parser, {name: (command.description or "").rstrip(".") for name, command in commands.choices.items()})


def _add_installation(commands: Commands) -> None:
    text = "link this package into HERMES_HOME/plugins, where hosts look for it"
    install = add(commands, "install", text, "link:install")
    install.add_argument("--remove", action="store_true", help="delete the link")
    text = "choose a database and an embedding model, save the settings, and test them"
    setup = add(commands, "setup", text, "setup.wizard:setup")
    where = setup.add_mutually_exclusive_group()
    where.add_argument("--embedded", action="store_true", help="use the embedded Postgres")
    text = "use this Postgres; put a password into HERMES_PGVECTOR_DSN or ~/.pgpass instead"
    where.add_argument("--dsn", action=Filled, help=text)
    setup.add_argument("--embed-url", metavar="URL", help="the embedding endpoint; empty: the bundled model")
    setup.add_argument("--embed-model", metavar="NAME", help="the name of the model")
    setup.add_argument("--yes", action="store_true", help="ask no questions; settings that are not given are kept")
    text = "create or upgrade the tables, as the database's administrator"
    migrate = add(commands, "migrate", text, "migration:migrate")
    add_administrator(migrate)
    text = "let this role read and write rows, and nothing else"
    migrate.add_argument("--runtime-role", action=Filled, metavar="NAME", help=text)
    text = "let this role read rows, and nothing else, as for serve"
    migrate.add_argument("--reader-role", action=Filled, metavar="NAME", help=text)
    text = "distribute the tables over the nodes of a Citus cluster; --dsn is that of its coordinator"
    migrate.add_argument("--citus", action="store_true", help=text)
    text = "have Postgres keep the themes of logins apart by their grants, or stop that"
    migrate.add_argument("--row-security", action=argparse.BooleanOptionalAction, help=text)
    migrate.add_argument("--force", action="store_true", help="go on beside agents of an earlier release")
    text = "the number of dimensions of vectors, for new tables (default: that of the embedding model)"
    migrate.add_argument("--dimensions", type=number(1, 4000), metavar="N", help=text)


def _add_search(commands: Commands) -> None:
    search = add(commands, "search", "search the memory as an agent does", "search:search")
    search.add_argument("query", metavar="QUERY", help="the text to search for")
    text = "most hits of each kind (default 10); --top-k is the name of earlier releases"
    search.add_argument("--limit", "--top-k", type=number(1), default=10, metavar="N", help=text)
    search.add_argument(
        "--theme", action=Once, default="", metavar="T", help="search as this theme (default: that of this home)"
    )
    text = "current, session, all or a theme (default: the setting)"
    search.add_argument("--scope", default="", metavar="S", help=text)
    search.add_argument("--session", default="", metavar="ID", help="the session of scope `session`")
    kinds = ("memory", "turns", "both")
    search.add_argument("--kind", choices=kinds, default="both", help="what to search (default both)")
    text = "only entries with this tag, or turns of sessions in which one was remembered; give it again for others"
    search.add_argument("--tag", action="append", default=[], metavar="TAG", help=text)
    search.add_argument("--all-tags", action="store_true", help="only those with all of the tags, not with any of them")
    side = search.add_mutually_exclusive_group()  # only entries have a target, only turns have a role
    side.add_argument("--target", choices=("memory", "user"), help=TARGET_HELP)
    side.add_argument("--role", choices=("user", "assistant"), default="", help="only turns of this side")
    search.add_argument("--since", default="", metavar="TIME", help=f"nothing older than {TIME_HELP}")
    search.add_argument("--until", default="", metavar="TIME", help="nothing newer; a date includes the whole day")
    text = "turns to show before and after each turn found (default 0)"
    search.add_argument("--context", type=number(0, 3), default=0, metavar="N", help=text)
    search.add_argument("--explain", action="store_true", help="show how the answer came about")


def _add_watch(commands: Commands) -> None:
    text = "for cron: exit with 3 when the memory is silent or degraded, and say why"
    watch = add(commands, "watch", text, "watch.report:watch")
    text = "compare turns of the last N hours (default 24)"
    watch.add_argument("--hours", type=number(1, 8760), default=24, metavar="N", help=text)
    text = "compare the newest N turns that should be stored (default 20)"
    watch.add_argument("--turns", type=number(1, 1000), default=20, metavar="N", help=text)
    text = "alarm only when N turns or more should be stored, and none is (default 3)"
    watch.add_argument("--turns-min", type=number(1, 1000), default=3, metavar="N", help=text)
    text = "a turn may be on its way for S seconds (default 60)"
    watch.add_argument("--settle", type=number(0, 3600), default=60, metavar="S", help=text)
    text = "events may wait in a spool for N minutes (default 10)"
    watch.add_argument("--wait", type=number(1, 10_080), default=10, metavar="N", help=text)
    text = "write the result to FILE in the text format of Prometheus; without FILE to stdout"
    watch.add_argument("--metrics", action=Filled, nargs="?", const="-", metavar="FILE", help=text)
    host = watch.add_mutually_exclusive_group()
    text = "the `hermes` command of the host (default: the one on the PATH)"
    host.add_argument("--hermes", default="", metavar="PATH", help=text)
    host.add_argument("--skip-host", action="store_true", help="do not load the plugin as the host does")


def _add_spool(commands: Commands) -> None:
    spool = add(commands, "spool", "list, retry or delete dead letters; store waiting events", "")
    actions = spool.add_subparsers(dest="action", metavar="ACTION")
    add(actions, "list", "list the dead letters (events that could not be stored), and the spools", "spool:show_all")
    show = add(actions, "show", "print one dead letter with all its texts", "spool:show")
    show.add_argument("id", metavar="ID", help="its id, or the start of it")
    retry = add(actions, "retry", "try to store dead letters again", "spool:retry")
    retry.add_argument("--theme", action=Filled, default="", metavar="T", help="store them under this theme")
    drop = add(actions, "drop", "delete dead letters, after showing them", "spool:drop")
    drop.add_argument("--yes", action="store_true", help="ask no question")
    flush = add(actions, "flush", "store the events that ended processes left in their spools", "spool:flush")
    for action in (retry, drop):
        which = action.add_mutually_exclusive_group(required=True)
        which.add_argument("id", nargs="?", metavar="ID", help="its id, or the start of it")
        which.add_argument("--all", action="store_true", help="all dead letters")
    for action in (retry, flush):
        action.add_argument("--wait", type=number(1), default=30, metavar="S", help="seconds to retry (default 30)")


def _add_policy(commands: Commands) -> None:
    capture = add(commands, "capture", "explain what is stored of a message", "")
    actions = capture.add_subparsers(dest="action", metavar="ACTION")
    text = "show whether a message is stored and recalls, and the rule of `keep` that decides"
    explain = add(actions, "explain", text, "capture:explain")
    explain.add_argument("text", metavar="TEXT", help="the message")
    explain.add_argument("--answer", default="", metavar="TEXT", help="the answer to it")
    explain.add_argument("--platform", default="cli", metavar="P", help="where it is said (default cli)")
    explain.add_argument("--chat-type", default="", metavar="T", help="dm, group, or what the platform calls it")
    explain.add_argument("--room", default="", metavar="ID", help="the id of the chat")
    explain.add_argument("--author", default="", metavar="ID", help="the id of the account that says it")
    text = "whose message it is (default user)"
    explain.add_argument("--role", choices=("user", "assistant"), default="user", help=text)
    text = "the agent's context, such as cron (default primary)"
    explain.add_argument("--context", default="primary", metavar="C", help=text)
    pending = add(commands, "pending", "list, approve or reject writes of agents that wait for approval", "")
    actions = pending.add_subparsers(dest="action", metavar="ACTION")
    add(actions, "list", "list the writes that wait, the oldest first", "pending:show_all")
    approve = add(actions, "approve", "make writes, after showing them", "pending:approve")
    reject = add(actions, "reject", "delete writes, after showing them", "pending:reject")
    for action in (approve, reject):
        action.add_argument("ids", nargs="*", metavar="ID", help="an id, or the start of one")
        action.add_argument("--all", action="store_true", help="all that wait")
        action.add_argument("--yes", action="store_true", help="ask no question")


def _add_maintenance(commands: Commands) -> None:
    server = add(commands, "server", "show, start or stop the embedded Postgres", "server:server")
    server.add_argument("action", choices=("status", "start", "stop"))
    modes, text = ("smart", "fast", "immediate"), "how to stop, as in pg_ctl (default fast)"
    server.add_argument("--mode", choices=modes, default="fast", help=text)
    backfill = add(commands, "backfill", "embed rows that have no vector, in the foreground", "backfill:backfill")
    backfill.add_argument("--batch", type=number(1, 512), metavar="N", help="the largest number of texts in a request")
    backfill.add_argument("--limit", type=number(1), metavar="N", help="stop after this many rows")
    text = "while an agent does the same, wait until it makes no progress for S seconds (default 45)"
    backfill.add_argument("--wait", type=number(0), default=45, metavar="S", help=text)
    text = "also embed the sentences of users' messages that were stored before sentences had vectors"
    backfill.add_argument("--sentences", action="store_true", help=text)
    tune = add(commands, "tune", "propose and build separate graph indexes for the largest themes", "tune:tune")
    add_administrator(tune)
    tune.add_argument("--apply", action="store_true", help="build and drop what is proposed")
    text = "least rows of such a theme (default: above exact_rows_max)"
    tune.add_argument("--rows-min", type=number(1), metavar="N", help=text)
    text = "most such indexes (default 24)"
    tune.add_argument("--indexes-max", type=number(0, 50), default=24, metavar="N", help=text)


def _add_files(commands: Commands) -> None:
    text = "make room in MEMORY.md and USER.md: show what may leave a full file for the database"
    relieve = add(commands, "relieve", text, "relieve:relieve")
    relieve.add_argument("--yes", action="store_true", help="do what the plan says; proposals stay proposals")
    text = "only files above N %% of their cap (default: relief_above_pct)"
    relieve.add_argument("--above", type=number(1, 100), metavar="N", help=text)


def _add_history(commands: Commands) -> None:
    text = "show earlier versions of entries that were replaced or removed"
    history = add(commands, "history", text, "history:history")
    history.add_argument("--theme", action=Once, default="", metavar="T", help="only of this theme (default: all)")
    history.add_argument("--target", choices=("memory", "user"), default="", help=TARGET_HELP)
    history.add_argument("--limit", type=number(1, 10_000), default=20, metavar="N", help="the newest N (default 20)")
    history.add_argument("--since", metavar="TIME", help=f"only changes after {TIME_HELP}")
    text = "change the text of an entry in $VISUAL or $EDITOR"
    edit = add(commands, "edit", text, "edit:edit")
    edit.add_argument("id", type=number(1, BIGINT_MAX), metavar="ID", help="its id, as `search` shows it")
    edit.add_argument(
        "--theme", default="", metavar="T", help="its theme (default: that of the only entry with the id)"
    )
    undo = add(commands, "undo", "restore an entry of the history", "history:undo")
    undo.add_argument("id", type=number(1, BIGINT_MAX), metavar="ID", help="its number in the history")


def _add_facts(commands: Commands) -> None:
    facts = add(commands, "facts", "show, list, search, write, export or purge facts", "")
    actions = facts.add_subparsers(dest="action", metavar="ACTION")
    status = add(
        actions, "status", "print the hot facts as agents get them, and how full the memory is", "facts:status"
    )
    listing = add(actions, "list", "list facts, the newest first", "facts:show_all")
    search = add(actions, "search", "find facts by words and by meaning", "facts:search")
    write = add(actions, "write", "write a fact", "facts:write")
    export = add(actions, "export", "print facts in their notation, one a line", "facts:export")
    purge = add(actions, "purge", "delete superseded and archived facts", "facts:purge")
    for action in (status, listing, search, write, export, purge):
        action.add_argument(
            "--theme", action=Filled, default="", metavar="T", help="the theme (default: that of this home)"
        )
    for action in (listing, search, write, export, purge):
        action.add_argument("--scope", action=Filled, default="", metavar="S", help="the work that facts belong to")
    statuses = ("active", "cold", "current", "superseded", "all")
    text = "which facts (default current: active and cold)"
    for action in (listing, export):
        action.add_argument("--status", choices=statuses, default="current", help=text)
    listing.add_argument("--limit", type=number(1, 10_000), default=50, metavar="N", help="the newest N (default 50)")
    search.add_argument("query", metavar="QUERY", help="the text to search for")
    search.add_argument("--limit", type=number(1, 20), default=10, metavar="N", help="most facts (default 10)")
    text = "the fact, such as 'C[db.id]: UUID, never autoincrement'"
    write.add_argument("content", type=stored_text, metavar="FACT", help=text)
    text = "only those that are older and were not used since"
    purge.add_argument("--older-than-days", type=number(0, 36_500), metavar="N", help=text)
    purge.add_argument("--yes", action="store_true", help="ask no question")


def _add_person(commands: Commands) -> None:
    person = add(commands, "person", "link the accounts of one person on several platforms, or separate them", "")
    actions = person.add_subparsers(dest="action", metavar="ACTION")
    add(actions, "list", "list the links, by theme", "person:show")
    link = add(actions, "link", "join accounts, which are asked for, and their rows", "person:link")
    unlink = add(actions, "unlink", "separate accounts, which are asked for, and their rows", "person:unlink")
    for action in (link, unlink):
        text = "the accounts' profile (default: this home's)"
        action.add_argument("--profile", action=Filled, default="", metavar="P", help=text)
        action.add_argument("--yes", action="store_true", help="ask for the accounts only, not whether to go on")


def _add_mcp(commands: Commands) -> None:
    mcp = add(commands, "mcp", "serve the memory to MCP clients, over stdin and stdout or over HTTP", "mcp:serve")
    text = "the theme to serve (default: that of an agent in a terminal); give it again for others that may be read"
    mcp.add_argument("--theme", action=Filled, default=[], metavar="T", help=text)
    text = "serve clients that have a token, over HTTP on this machine; the token says the theme"
    mcp.add_argument("--http", action="store_true", help=text)
    mcp.add_argument("--host", default="127.0.0.1", metavar="H", help="the address of --http (default 127.0.0.1)")
    mcp.add_argument("--port", type=number(0, 65535), default=8765, metavar="P", help="its port (default 8765)")
    token = add(mcp.add_subparsers(metavar="ACTION"), "token", "add, list or revoke the tokens of HTTP clients", "")
    actions = token.add_subparsers(dest="action", metavar="ACTION")
    adding = add(actions, "add", "make a token and print it, once", "mcp:add_token")
    text = "the theme that its client reads and writes; give it again for others that it may read"
    adding.add_argument("--theme", action=Filled, default=[], required=True, metavar="T", help=text)
    adding.add_argument("--name", default="", metavar="N", help="a name to recognise it by")
    text = "a time span (90d), a date or never (default)"
    adding.add_argument("--expires", action=Filled, default="", metavar="TIME", help=text)
    add(actions, "list", "list the tokens, without their secrets", "mcp:list_tokens")
    revoke = add(actions, "revoke", "delete a token; its client gets no answer any more", "mcp:revoke_token")
    revoke.add_argument("id", metavar="ID", help="its id or its name")
