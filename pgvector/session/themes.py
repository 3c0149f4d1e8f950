"""Finds the theme of a hook, and the themes that a theme may read.

A theme is a name (`billing`), or it is *reserved*: `dm-<platform>-<hash>` belongs to one person and
`group-<platform>-<hash>` to one chat room. Reserved names are made here only, from a messaging session and a secret
key. No client can ask for one, and no other theme reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ..errors import BadArgument
from ..model import Scope
from ..settings import Settings
from ..text import personal_keys
from ..text.keep import PRIVATE_CHATS, TERMINALS, Source
from ..text.setting_values import PLACEHOLDER
from ..text.theme_names import DEFAULT_THEME, covers, hidden_pattern, is_bench, is_pattern, normalise, reserved, segment
from .chats import CHAT_TYPES, PERSONAL, Chat, digest, theme_of_chat, theme_of_person

ROOM = "group-"
# The reason of a dead letter, stored with it: never change the text.
NOT_ALLOWED = "the theme is not in allowed_themes"
# Platforms that name no chat: whoever uses them is at the home, or is known by a header.
WITHOUT_CHATS = TERMINALS | {"api_server", "cron", "subagent"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who talks, as the host said to `initialize`; a field that it did not set is empty."""

    gateway_session_key: str = ""
    agent_identity: str = ""
    agent_workspace: str = ""
    platform: str = ""
    chat_type: str = ""
    chat_id: str = ""
    thread_id: str = ""
    user_id: str = ""
    user_id_alt: str = ""
    # Found by the plugin, see `HomeContext.located`.
    project: str = ""

    @classmethod
    def of(cls, kwargs: Mapping[str, Any]) -> Identity:
        """The identity in the keyword arguments of `initialize`; other arguments are ignored."""
        given = {field.name: str(kwargs.get(field.name) or "") for field in fields(cls)}
        return cls(**{**given, "project": ""})

    @property
    def only_author(self) -> str:
        """The id of the person of a session in which nobody else writes; empty where several do."""
        return self.user_id if self.has_one_author else ""

    @property
    def has_one_author(self) -> bool:
        """Whether one person alone writes: in private, or in a room whose session is that of one participant."""
        own = self.user_id_alt or self.user_id
        return self._is_private or bool(own and self.gateway_session_key.endswith(f":{own}"))

    def source(self, author_id: str) -> Source:
        """Where a text of this session comes from. In a room, an author without an id is unknown."""
        own = tuple(filter(None, (self.user_id, self.user_id_alt)))
        authors = own if self._is_private or author_id in own else (author_id,) if author_id else None
        rooms = tuple(filter(None, (self.chat_id, self.thread_id)))
        return Source(platform=self.platform, chat_type=self._chat_type, rooms=rooms, authors=authors)

    @property
    def _chat_type(self) -> str:
        chat = Chat.of(self.gateway_session_key)
        return self.chat_type or (chat.type if chat and self.platform != "api_server" else "")

    @property
    def _is_private(self) -> bool:
        return not self._chat_type or self._chat_type in PRIVATE_CHATS


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


def keyed(identity: Identity, running_key: str = "") -> Identity:
    """The identity with a session key of its chat, which hosts leave out for tasks in the background.

    It is the key of the running request, if that is of the same chat.
    """
    if (
        identity.gateway_session_key
        or not (identity.chat_id or identity.user_id_alt or identity.user_id)
        or identity.platform in WITHOUT_CHATS
    ):
        return identity
    platform, kind = identity.platform.replace(":", "_") or "unknown", identity.chat_type.replace(":", "_") or "dm"
    chat, now = Chat("main", platform, kind, identity.chat_id), Chat.of(running_key)
    alike = now is not None and (now.platform, now.type) == (platform, kind) and f":{chat.ids}:" in f":{now.ids}:"
    return replace(identity, gateway_session_key=running_key if chat.ids and alike else chat.key)


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


def readable(
    theme: str, scope: str, settings: Settings, granted: tuple[str, ...] | None = None
) -> tuple[str, ...] | None:
    """The themes that `theme` reads when it asks for `scope`: `current`, `session`, `all`, or the name of a theme.

    None means `theme` itself and every theme that `theme_names.hidden_pattern` does not match. Where other themes are
    `granted`, the settings add none to them. Raises BadArgument when the scope may not be read.
    """
    wanted = normalise(scope)
    if wanted == "session":
        return (theme,)
    _, *also = unasked = read_unasked(theme, settings) if granted is None else (theme,)
    if wanted == "current":
        return unasked
    others = _others(theme, settings) if granted is None else _granted(theme, granted, settings)
    if wanted == "all":
        return None if others is None else tuple(dict.fromkeys((theme, *also, *others)))
    named = aliased(wanted, settings.theme_aliases)
    if named == theme:
        return (theme,)
    hidden = reserved(named) or is_bench(named, settings.bench_themes) or not allowed(named, settings.allowed_themes)
    if hidden or (others is not None and named not in (*also, *others)):
        choice = "" if others is None else "".join(f", {other}" for other in (*also, *others)[:20])
        rule = "" if hidden or granted is not None else "; the setting cross_theme_recall opens other themes"
        raise BadArgument(f"scope {_quoted(scope)} may not be read from here; use current, session, all{choice}{rule}")
    return (named,)


def scope_of(
    theme: str, name: str, session_id: str, settings: Settings, granted: tuple[str, ...] | None = None
) -> Scope:
    """The rows that `theme` may read with the scope `name`, as `readable`; empty for `scope_default`.

    Raises BadArgument.
    """
    name = normalise(name or settings.scope_default)
    if name == "session" and not session_id:
        raise BadArgument("scope is 'session' but there is no session; use current")
    hidden = hidden_pattern(settings.bench_themes, settings.allowed_themes)
    themes = readable(theme, name, settings, granted)
    return Scope(theme, themes, (session_id,) if name == "session" else (), hidden=hidden)


def writable(theme: str, name: str, settings: Settings) -> str:
    """The theme that `theme` may write by the name `name`. Raises BadArgument unless `also_write` lists it."""
    named = stored_name(name, settings)
    listed = layered(theme, settings.also_write, settings)
    if named != theme and named not in listed:
        choice = ", ".join(listed[:20])
        raise BadArgument(
            f"theme {_quoted(name)} may not be written from here; "
            + (f"leave it out, or use {choice}" if listed else "leave it out")
        )
    return named


def read_unasked(theme: str, settings: Settings) -> tuple[str, ...]:
    """The themes that a recall of `theme` reads without being asked: itself, then those of `also_recall`."""
    return (theme, *layered(theme, settings.also_recall, settings))


def layered(theme: str, rules: Mapping[str, Collection[str]], settings: Settings) -> tuple[str, ...]:
    """The other themes that the rules of `also_recall` or `also_write` list for a theme, by their stored names.

    A key of the rules is a theme or a pattern. Reserved names and benchmark themes are never listed.
    """
    if is_bench(theme, settings.bench_themes):
        return ()
    ours = [names for key, names in rules.items() if covers(stored_name(key, settings), theme)]
    return _listed(theme, ours, settings)


def _others(theme: str, settings: Settings) -> tuple[str, ...] | None:
    """The other themes that a theme may read, by their stored names; None for all that are not hidden."""
    rule = settings.cross_theme_recall
    if rule == "none" or is_bench(theme, settings.bench_themes):
        return ()
    if isinstance(rule, dict):
        ours = [themes for reader, themes in rule.items() if stored_name(reader, settings) == theme]
        return _listed(theme, ours, settings)
    names = settings.allowed_themes
    # Where there are patterns, `hidden_pattern` leaves out what they do not cover.
    return _visible(theme, names, settings) if names and not any(map(is_pattern, names)) else None


def _granted(theme: str, granted: tuple[str, ...], settings: Settings) -> tuple[str, ...]:
    """Those of the granted themes that `theme` may read: never reserved ones, nor any from or of a benchmark."""
    return () if is_bench(theme, settings.bench_themes) else _listed(theme, [granted], settings)


def _listed(theme: str, lists: Iterable[Iterable[str]], settings: Settings) -> tuple[str, ...]:
    """The other themes of some lists that may be used, by their stored names."""
    found = _visible(theme, (name for names in lists for name in names), settings)
    return tuple(name for name in found if allowed(name, settings.allowed_themes))


def _visible(theme: str, names: Iterable[str], settings: Settings) -> tuple[str, ...]:
    """The stored names of those other themes that are not hidden."""
    found, bench = dict.fromkeys(stored_name(name, settings) for name in names), settings.bench_themes
    return tuple(name for name in found if name != theme and not reserved(name) and not is_bench(name, bench))


def _named(name: str, aliases: Mapping[str, str]) -> str:
    theme = normalise(name)
    if reserved(theme):
        raise BadArgument(f"theme {_quoted(theme)} is reserved for one person or room; choose another name")
    return aliased(theme, aliases)


def _quoted(name: str) -> str:
    return repr(name if len(name) <= 60 else f"{name[:59]}…")
