"""Finds the theme of a hook.

A theme is a name (`billing`), or it is *reserved*: `dm-<platform>-<hash>` belongs to one person and
`group-<platform>-<hash>` to one chat room. Reserved names are made here only, from a messaging session and a secret
key. No client can ask for one, and no other theme reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..errors import BadArgument
from ..settings import Settings
from ..text import personal_keys
from ..text.setting_values import PLACEHOLDER
from ..text.theme_names import DEFAULT_THEME, covers, normalise, reserved, segment
from .chats import CHAT_TYPES, PERSONAL, Chat, digest, theme_of_chat, theme_of_person
from .identity import Identity, keyed

ROOM = "group-"
# The reason of a dead letter, stored with it: never change the text.
NOT_ALLOWED = "the theme is not in allowed_themes"


def theme_of(
    identity: Identity,
    session_key: str | None = None,
    *,
    aliases: Mapping[str, str],
    person_key: bytes,
    hashes_personal: bool = False,
) -> str:
    """The theme of a hook that runs now.

    `session_key` is the key of the running request. It is ignored unless `initialize` got one too, or a chat: without
    one it may come from the environment of the process. `person_key` is the key of the hashes of persons and rooms,
    which are also made of other keys that look like a person when `hashes_personal`.

    Raises BadArgument when a client names a reserved theme, SettingsError when `person_key` is needed and empty.
    """
    identity = keyed(identity)
    if not identity.gateway_session_key:
        return home_theme(identity, aliases=aliases)
    key = session_key or identity.gateway_session_key
    chat = Chat.of(key)
    if identity.platform == "api_server":
        # Only these keys come from clients, in any case and width, and perhaps with hidden characters.
        claimed = Chat.of(normalise(key))
        if claimed and claimed.type in CHAT_TYPES:
            raise BadArgument("X-Hermes-Session-Key has the form of a messaging session; name a theme instead")
        chat = None
    if chat:
        # A chat of an unknown type is private, too. What the host says of a chat is about that of `initialize`.
        own = identity if key == identity.gateway_session_key else Identity()
        profile, sender = identity.agent_identity or DEFAULT_THEME, own.user_id_alt or own.user_id
        return aliased(theme_of_chat(chat, profile, own.chat_id, sender, person_key), aliases)
    named = normalise(key)
    if hashes_personal and personal_keys.kind(named) and aliased(named, aliases) == named:
        return theme_of_person(named, person_key)
    return _named(key, aliases)


def author_of(platform: str, user_id: str, *, person_key: bytes) -> str:
    """The pseudonym of a person in a chat room; empty without a `person_key`."""
    parts = ("author", platform, user_id)
    return digest(parts, person_key) if person_key else ""


def home_theme(identity: Identity, *, aliases: Mapping[str, str]) -> str:
    """The theme of the home itself, which MEMORY.md and USER.md are reconciled with.

    Raises BadArgument when the profile's name is reserved.
    """
    for name, unset in ((identity.agent_identity, "default"), (identity.agent_workspace, "hermes")):
        if name.strip() and normalise(name) != unset:
            return _named(name, aliases)
    return aliased(DEFAULT_THEME, aliases)


def templated_theme(identity: Identity, settings: Settings) -> str:
    """The theme of a session without a session key, by `theme_template`.

    Without a template it is that of the home, and also where the template names a project and there is none. A project
    takes no name that has a meaning of its own: its theme is then called `project-` and that name.
    """
    aliases, template = settings.theme_aliases, settings.theme_template
    values = {
        "project": segment(identity.project),
        "profile": segment(identity.agent_identity) or DEFAULT_THEME,
        "platform": segment(identity.platform) or "cli",
    }
    of_project = "{project}" in template
    if not template or (of_project and not values["project"]):
        return home_theme(identity, aliases=aliases)
    theme = normalise(PLACEHOLDER.sub(lambda found: values[found[1]], template))
    if reserved(theme) or (of_project and theme in _taken(settings)):
        theme = normalise(f"project-{theme}")
    return aliased(theme, aliases)


def _taken(settings: Settings) -> set[str]:
    """The names that a project must not take: whoever writes the files of a repository chooses its name."""
    rules = (settings.also_recall, settings.also_write)
    names = [name for rule in rules for names in rule.values() for name in names]
    return {DEFAULT_THEME, *map(normalise, names), *(stored_name(name, settings) for name in names)}


def stored_name(name: str, settings: Settings) -> str:
    """The name that a theme is stored under."""
    return aliased(normalise(name), settings.theme_aliases)


def aliased(theme: str, aliases: Mapping[str, str]) -> str:
    """The theme of a normalised name. Aliases of aliases are not followed; a reserved theme is no target."""
    target = aliases.get(theme)
    if target is None:
        target = next((aliases[alias] for alias in aliases if normalise(alias) == theme), theme)
    resolved = normalise(target)
    return theme if reserved(resolved) else resolved


def allowed(theme: str, allowed_themes: Collection[str]) -> bool:
    """Whether this theme, or a pattern of it, is among those that may be used.

    Those of chats always are, because the host decides who may write to it. Clients choose the keys that are hashed.
    """
    of_chat = reserved(theme) and not theme.startswith(PERSONAL)
    return not allowed_themes or of_chat or any(covers(name, theme) for name in allowed_themes)


def trial_theme(usual: str, settings: Settings) -> str:
    """A theme for a trial entry: `usual`, or the first of `allowed_themes`, or one that its pattern covers."""
    first = next(iter(settings.allowed_themes), usual)
    return normalise(first.replace("*", "trial").replace("?", "x"))


def _named(name: str, aliases: Mapping[str, str]) -> str:
    theme = normalise(name)
    if reserved(theme):
        raise BadArgument(f"theme {quoted(theme)} is reserved for one person or room; choose another name")
    return aliased(theme, aliases)


def quoted(name: str) -> str:
    """A name in an error message: at most 60 characters of it."""
    return repr(name if len(name) <= 60 else f"{name[:59]}…")
