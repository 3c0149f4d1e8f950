"""The schemas of the tools for facts, memory_write and its like, and of memory_optimize."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import arguments as given

if TYPE_CHECKING:
    from ..store.facts import Status

SEARCH_LIMIT_DEFAULT, SEARCH_LIMIT_MAX = 5, 20
REFLECT_LIMIT_DEFAULT = 20
STATUSES: dict[str, tuple[Status, ...]] = {"active": ("active",), "cold": ("cold",), "all": ("active", "cold")}

# Models write numbers as texts, too.
_WHOLE = {"type": ["integer", "string"]}
_SESSION = {"type": "string", "description": "Another session than the running one; leave out otherwise"}
_SCOPE = {"type": "string", "description": "Only facts of this piece of work"}
_LIMIT = f"Most facts, from 1 to {SEARCH_LIMIT_MAX}"

SCHEMAS = (
    given.schema(
        "memory_write",
        "Keep one fact for all agents of this theme, as KIND[target]: text. Kinds: C constraint, D decision, V value, "
        "? open question, ✓ done (closes its scope), ~ obsolete. Example: C[db.id]: UUID, never autoincrement. A new "
        "fact of the same kind, target and scope takes the place of the old one. Use it once something is settled.",
        {
            "content": {
                "type": "string",
                "description": "The fact on one line, e.g. V[srv.prod]: api.example.com:3005",
            },
            "scope": {
                "type": "string",
                "description": "The piece of work it belongs to, e.g. auth-refactor; leave out for the current one",
            },
            "session_id": _SESSION,
        },
        required=["content"],
    ),
    given.schema(
        "memory_search",
        "Find facts by their words and by their meaning, cold ones too. Use it before you answer about something that "
        "may have been settled earlier.",
        {
            "query": {"type": "string", "description": "What to look for, in words or as a question"},
            "scope": _SCOPE,
            "limit": {**_WHOLE, "description": f"{_LIMIT} (default {SEARCH_LIMIT_DEFAULT})"},
        },
        required=["query"],
    ),
    given.schema(
        "memory_tick",
        "Tell that the user has sent a message. Scopes of work close when a message says that they are done, or when "
        "nothing is written to them for some turns; their facts are then only found by memory_search.",
        {
            "turn": {**_WHOLE, "description": "The number of the turn, one more with each message of the user"},
            "message": {"type": "string", "description": "The message; it is read for signs of an end and not stored"},
            "session_id": _SESSION,
        },
        required=["turn"],
    ),
    given.schema(
        "memory_status",
        "The block to put into the context at the start of a session: the notation, how full the memory is, the open "
        "scopes and the hot facts.",
        {"session_id": _SESSION},
    ),
    given.schema(
        "memory_reflect",
        "All that is known about a topic, hot and cold, sorted by kind, with the earlier facts that it superseded. "
        "Changes nothing.",
        {
            "topic": {"type": "string", "description": "What to look back on, in words or as a question"},
            "limit": {**_WHOLE, "description": f"{_LIMIT} (default {REFLECT_LIMIT_DEFAULT})"},
        },
        required=["topic"],
    ),
    given.schema(
        "memory_export",
        "The facts of this theme in their notation, one a line, the newest first.",
        {
            "scope": _SCOPE,
            "status": {"type": "string", "enum": list(STATUSES), "description": "Which facts (default all)"},
        },
    ),
    given.schema(
        "memory_purge",
        "Delete superseded and archived facts for good. Facts that hold are never deleted.",
        {
            "scope": {"type": "string", "description": "Only those of this piece of work"},
            "older_than_days": {**_WHOLE, "description": "Only those that are older and were not used since"},
        },
    ),
)

MEMORY_OPTIMIZE = given.schema(
    "memory_optimize",
    "Make room in MEMORY.md and USER.md when they are nearly full: long entries that did not change for long leave the "
    "file, and the durable memory keeps and recalls them. Shows the plan; with dry_run false it is carried out.",
    {
        "threshold_pct": {
            "type": ["number", "string"],
            "description": "Only files above this share of their cap, in % (default: the setting `relief_above_pct`)",
        },
        "dry_run": {"type": "boolean", "description": "false: do what the plan says (default true: only show it)"},
        "session_id": _SESSION,
    },
)
