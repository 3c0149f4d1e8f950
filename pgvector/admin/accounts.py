"""Accounts of persons, which are asked for and never an argument: a shell keeps its commands, and `ps` shows them."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import BadArgument
from ..hosts.environment import profile_name
from ..runtime import Runtime
from ..session.themes import Identity, home_theme
from ..text.theme_names import is_bench, normalise, reserved
from .console import Console

ACCOUNTS_MAX = 20
PERSON = "dm-person-"
QUESTION = (
    "Accounts, one a line, then an empty line. An account is a platform and the id of the private chat (telegram "
    "123456789), a session key of the host (agent:main:telegram:dm:123456789), a theme (dm-telegram-1f3a…), or cli."
)
_SESSION_KEY = re.compile(r"agent:[^:]+:([^:]+):[^:]+(?::.*)?", re.DOTALL)


def asked(runtime: Runtime, home: Path, console: Console, profile: str) -> list[str]:
    """The themes of the accounts that the operator types; `profile` is empty for that of the home.

    Raises BadArgument.
    """
    lines = console.lines(QUESTION, ACCOUNTS_MAX)
    profile = profile or profile_name(home)
    accounts = list(dict.fromkeys(_account(line, runtime, profile) for line in lines))
    if not accounts:
        raise BadArgument("no account was named; nothing is changed")
    return accounts


def _account(line: str, runtime: Runtime, profile: str) -> str:
    """The theme of an account. Raises BadArgument for a room, a person, and what is no account."""
    platform, _, chat = line.partition(" ")
    platform, chat, settings = platform.lower(), chat.strip(), runtime.settings
    if reserved(normalise(line)):
        theme = normalise(line)
    elif platform == "cli":
        theme = home_theme(Identity(agent_identity=chat or profile), aliases=settings.theme_aliases)
    elif key := _SESSION_KEY.fullmatch(line):
        theme = runtime.context.theme(Identity(gateway_session_key=line, agent_identity=profile, platform=key[1]), None)
    elif chat and re.fullmatch(r"[a-z0-9_]{1,24}", platform):
        key_of_chat = f"agent:main:{platform}:dm:{chat}"
        told = Identity(gateway_session_key=key_of_chat, agent_identity=profile, platform=platform, chat_id=chat)
        theme = runtime.context.theme(told, None)
    else:
        # The line may hold a number or a name, which no message repeats.
        raise BadArgument("a line is no account; write a platform and the id of a private chat, or cli")
    if theme.startswith(("group-", PERSON)) and reserved(theme):
        raise BadArgument(f"{theme} is a {'person' if theme.startswith(PERSON) else 'room'} and no account")
    if is_bench(theme, settings.bench_themes):
        raise BadArgument(f"{theme} is a theme of benchmarks and no account")
    return theme
