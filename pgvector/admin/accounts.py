"""Accounts of persons, which are asked for and never an argument: a shell keeps its commands, and `ps` shows them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ..errors import BadArgument
from ..hosts.environment import profile_name
from ..runtime import Runtime
from ..session.chats import Chat, theme_of_person
from ..session.identity import Identity
from ..session.themes import home_theme
from ..text import personal_keys
from ..text.theme_names import is_bench, normalise, reserved
from .console import Console

ACCOUNTS_MAX = 20
PERSON = "dm-person-"
QUESTION = """Accounts, one a line, then an empty line. An account is one of these:
  telegram 123456789                a platform and the id of the private chat
  agent:main:telegram:dm:123456789  the same by the host's session key
  key alice@example.com             the session key of a client of the API
  dm-telegram-1f3a5c7e9b0d2f46      a theme
  cli                               agents in a terminal"""


def asked(
    runtime: Runtime, home: Path, console: Console, profile: str, known: Callable[[str], bool] = lambda _: False
) -> list[str]:
    """The themes of the accounts that the operator types; `profile` is empty for that of the home.

    Also those that they have with another value of `hash_personal_keys`, if they are `known`. Raises BadArgument.
    """
    lines = console.lines(QUESTION, ACCOUNTS_MAX)
    profile = profile or profile_name(home)
    found = [_account(line, runtime, profile) for line in lines]
    keys = filter(None, map(_personal_key, lines))
    found += [theme for key in keys for theme in _both(normalise(key), runtime) if known(theme)]
    accounts = list(dict.fromkeys(found))
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
    elif key := Chat.of(line):
        identity = Identity(gateway_session_key=line, agent_identity=profile, platform=key.platform)
        theme = runtime.context.theme(identity, None)
    elif of_client := _personal_key(line):
        theme = runtime.context.theme(Identity(gateway_session_key=of_client, platform="api_server"), None)
    elif chat and platform != "key" and re.fullmatch(r"[a-z0-9_]{1,24}", platform):
        key_of_chat = f"agent:main:{platform}:dm:{chat}"
        identity = Identity(gateway_session_key=key_of_chat, agent_identity=profile, platform=platform, chat_id=chat)
        theme = runtime.context.theme(identity, None)
    else:
        # The line may hold a number or a name, which no message repeats.
        raise BadArgument("a line is no account; write a platform and the id of a private chat, or cli")
    if theme.startswith(("group-", PERSON)) and reserved(theme):
        raise BadArgument(f"{theme} is a {'person' if theme.startswith(PERSON) else 'room'} and no account")
    if is_bench(theme, settings.bench_themes):
        raise BadArgument(f"{theme} is a theme of benchmarks and no account")
    return theme


def _personal_key(line: str) -> str:
    """The session key in a line `key K`, if it looks like a person; else empty."""
    word, _, key = line.partition(" ")
    return key if word.lower() == "key" and personal_keys.kind(normalise(key)) else ""


def _both(named: str, runtime: Runtime) -> tuple[str, str]:
    """The theme of a session key as it is, and the hashed one."""
    return named, runtime.context.person_key.name(lambda key: theme_of_person(named, key))
