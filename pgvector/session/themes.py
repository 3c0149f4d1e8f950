"""Finds the theme of a hook, and the themes that a theme may read.

A theme is a name (`billing`), or it is *reserved*: `dm-<platform>-<hash>` belongs to one person and
`group-<platform>-<hash>` to one chat room. Reserved names are made here only, from a messaging session and a secret
key. No client can ask for one, and no other theme reads it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import BadArgument, SettingsError
from ..model import Scope
from ..settings import Settings
from ..text.keep import PRIVATE_CHATS, Source
from ..text.setting_values import PLACEHOLDER
from ..text.theme_names import DEFAULT_THEME, covers, hidden_pattern, is_bench, normalise, reserved, segment

ROOM = "group-"

_SESSION_KEY = re.compile(r"agent:([^:]+):([^:]+):([^:]+)(?::(.*))?", re.DOTALL)
_CHAT_TYPES = PRIVATE_CHATS | {"group", "channel", "thread", "forum", "guild", "room", "supergroup", "webhook"}
# Ids that contain colons: Matrix rooms and users, Signal groups, Teams conversations.
_ID = re.compile(
    r"[!@#][^:]+:[^:]+(?::\d{2,5}(?![^:]))?"
    r"|group:[^:]+"
    r"|(?:\d{1,2}|a):(?:orgid:)?[^:]+"
    r"|[^:]+"
)
_SLACK_SCOPE = re.compile(r"[TE][A-Z0-9]{5,}")


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
        told = {field.name: str(kwargs.get(field.name) or "") for field in fields(cls)}
        return cls(**{**told, "project": ""})

    @property
    def only_author(self) -> str:
        """The id of the person of a private session; empty in a room, where several write."""
        return self.user_id if self._is_private else ""

    def source(self, author_id: str) -> Source:
        """Where a text of this session comes from. In a room, an author without an id is unknown."""
        own = tuple(filter(None, (self.user_id, self.user_id_alt)))
        authors = own if self._is_private or author_id in own else (author_id,) if author_id else None
        rooms = tuple(filter(None, (self.chat_id, self.thread_id)))
        return Source(platform=self.platform, chat_type=self._chat_type, rooms=rooms, authors=authors)

    @property
    def _chat_type(self) -> str:
        key = _SESSION_KEY.fullmatch(self.gateway_session_key)
        return self.chat_type or (key[3] if key and self.platform != "api_server" else "")

    @property
    def _is_private(self) -> bool:
        return not self._chat_type or self._chat_type in PRIVATE_CHATS


def theme_of(
    identity: Identity, session_key: str | None = None, *, aliases: Mapping[str, str], person_key: bytes
) -> str:
    """The theme of a hook that runs now.

    `session_key` is the key of the running request. It is ignored unless `initialize` got one too: without
    one it may come from the environment of the process. `person_key` is the key of the hashes of persons and rooms.

    Raises BadArgument when a client names a reserved theme, SettingsError when `person_key` is needed and empty.
    """
    if not identity.gateway_session_key:
        return home_theme(identity, aliases=aliases)
    key = session_key or identity.gateway_session_key
    if identity.platform == "api_server":
        # Only these keys come from clients, in any case and width, and perhaps with hidden characters.
        claimed = _SESSION_KEY.fullmatch(normalise(key))
        if claimed and claimed[3] in _CHAT_TYPES:
            raise BadArgument("X-Hermes-Session-Key has the form of a messaging session; name a theme instead")
        return _named(key, aliases)
    messaging = _SESSION_KEY.fullmatch(key)
    if messaging:
        # A chat of an unknown type is private, too.
        return aliased(_messaging_theme(identity, key, messaging, person_key), aliases)
    return _named(key, aliases)


def author_of(platform: str, user_id: str, *, person_key: bytes) -> str:
    """The pseudonym of a person in a chat room; empty without a `person_key`."""
    parts = ("author", platform, user_id)
    return _digest(parts, person_key) if person_key else ""


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
    return {DEFAULT_THEME, *map(normalise, names), *(_stored(name, settings) for name in names)}


def aliased(theme: str, aliases: Mapping[str, str]) -> str:
    """The theme of a normalised name. Aliases of aliases are not followed; a reserved theme is no target."""
    target = aliases.get(theme)
    if target is None:
        target = next((aliases[alias] for alias in aliases if normalise(alias) == theme), theme)
    resolved = normalise(target)
    return theme if reserved(resolved) else resolved


def allowed(theme: str, allowed_themes: Collection[str]) -> bool:
    """Whether this theme may be used. Reserved themes always may: they are not typed."""
    return not allowed_themes or reserved(theme) or theme in map(normalise, allowed_themes)


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
    hidden = reserved(named) or is_bench(named, settings.bench_themes)
    if hidden or (others is not None and named not in (*also, *others)):
        choice = "" if others is None else "".join(f", {other}" for other in (*also, *others)[:20])
        raise BadArgument(f"scope {_quoted(scope)} may not be read from here; use current, session, all{choice}")
    return (named,)


def scope_of(
    theme: str, name: str, session_id: str, settings: Settings, granted: tuple[str, ...] | None = None
) -> Scope:
    """The rows that `theme` may read with the scope `name`, as `readable`; empty for `scope_default`.

    Raises BadArgument.
    """
    name = name or settings.scope_default
    if name == "session" and not session_id:
        raise BadArgument("scope is 'session' but there is no session; use current")
    hidden = hidden_pattern(settings.bench_themes)
    themes = readable(theme, name, settings, granted)
    return Scope(theme, themes, session_id if name == "session" else "", hidden=hidden)


def writable(theme: str, name: str, settings: Settings) -> str:
    """The theme that `theme` may write by the name `name`. Raises BadArgument unless `also_write` lists it."""
    named = aliased(normalise(name), settings.theme_aliases)
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
    ours = [names for key, names in rules.items() if covers(_stored(key, settings), theme)]
    return _listed(theme, ours, settings)


def _others(theme: str, settings: Settings) -> tuple[str, ...] | None:
    """The other themes that a theme may read, by their stored names; None for all that are not hidden."""
    rule = settings.cross_theme_recall
    if rule == "none" or is_bench(theme, settings.bench_themes):
        return ()
    if isinstance(rule, dict):
        ours = [themes for reader, themes in rule.items() if _stored(reader, settings) == theme]
        return _listed(theme, ours, settings)
    return _visible(theme, settings.allowed_themes, settings) if settings.allowed_themes else None


def _granted(theme: str, granted: tuple[str, ...], settings: Settings) -> tuple[str, ...]:
    """Those of the granted themes that `theme` may read: never reserved ones, nor any from or of a benchmark."""
    return () if is_bench(theme, settings.bench_themes) else _listed(theme, [granted], settings)


def _listed(theme: str, lists: Iterable[Iterable[str]], settings: Settings) -> tuple[str, ...]:
    """The other themes of some lists that may be used, by their stored names."""
    found = _visible(theme, (name for names in lists for name in names), settings)
    return tuple(name for name in found if allowed(name, settings.allowed_themes))


def _visible(theme: str, names: Iterable[str], settings: Settings) -> tuple[str, ...]:
    """The stored names of those other themes that are not hidden."""
    found, bench = dict.fromkeys(_stored(name, settings) for name in names), settings.bench_themes
    return tuple(name for name in found if name != theme and not reserved(name) and not is_bench(name, bench))


def _stored(name: str, settings: Settings) -> str:
    return aliased(normalise(name), settings.theme_aliases)


def _named(name: str, aliases: Mapping[str, str]) -> str:
    theme = normalise(name)
    if reserved(theme):
        raise BadArgument(f"theme {_quoted(theme)} is reserved for one person or room; choose another name")
    return aliased(theme, aliases)


def _messaging_theme(identity: Identity, key: str, parts: re.Match[str], person_key: bytes) -> str:
    if not person_key:
        raise SettingsError("HERMES_PGVECTOR_PERSON_KEY is empty and no key was generated; set it to a random text")
    profile, platform, chat_type, ids = parts[1], parts[2], parts[3], parts[4] or ""
    kind = "dm" if chat_type in PRIVATE_CHATS else "group"
    # In a gateway of many profiles the key names the profile, otherwise the home does.
    if profile == "main":
        profile = identity.agent_identity or DEFAULT_THEME
    hint = identity if key == identity.gateway_session_key else None
    stable = (profile.rstrip("~"), platform, kind, *_stable_ids(platform, kind, ids, hint))
    return f"{kind}-{re.sub('[^a-z0-9_]', '_', platform.lower())[:24]}-{_digest(stable, person_key)}"


def _digest(parts: Iterable[str], key: bytes) -> str:
    # With the lengths, different lists of parts never give the same message.
    message = "".join(f"{len(part)}:{part}" for part in parts)
    return hmac.new(key, message.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:16]


def _stable_ids(platform: str, kind: str, ids: str, hint: Identity | None) -> tuple[str, ...]:
    """The ids that identify a person or room: the chat, or the sender of a private chat without an id.

    Thread and participant follow the id of the chat in the key and are left out.
    """
    if not ids:
        sender = hint.user_id_alt or hint.user_id if hint and kind == "dm" else ""
        return (sender,) if sender else ()
    scope: tuple[str, ...] = ()
    head, _, rest = ids.partition(":")
    if platform == "slack" and rest and _SLACK_SCOPE.fullmatch(head):
        scope, ids = (head,), rest
    if hint and hint.chat_id and (ids == hint.chat_id or ids.startswith(f"{hint.chat_id}:")):
        return (*scope, hint.chat_id)
    chat = _ID.match(ids)
    return (*scope, chat[0] if chat else ids)


def _quoted(name: str) -> str:
    return repr(name if len(name) <= 60 else f"{name[:59]}…")
