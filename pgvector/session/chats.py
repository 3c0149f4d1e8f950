"""Themes of persons and chat rooms: keyed hashes of the ids in the key of a messaging session. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import NamedTuple

from ..errors import SettingsError
from ..text import personal_keys
from ..text.keep import PRIVATE_CHATS

# Of a session key that names a person, whatever platform it comes from.
PERSONAL = "dm-key-"
CHAT_TYPES = PRIVATE_CHATS | {"group", "channel", "thread", "forum", "guild", "room", "supergroup", "webhook"}
_SESSION_KEY = re.compile(r"agent:([^:]+):([^:]+):([^:]+)(?::(.*))?", re.DOTALL)
# Ids that contain colons: Matrix rooms and users, Signal groups, Yuanbao chats, webhooks, Teams conversations.
_ID = re.compile(
    r"[!@#][^:]+:[^:]+(?::\d{2,5}(?![^:]))?"
    r"|(?:group|direct|msgraph|webhook:[^:]+):[^:]+"
    r"|(?:\d{1,2}|a):(?:orgid:)?[^:]+"
    r"|[^:]+"
)
_SLACK_SCOPE = re.compile(r"[TE][A-Z0-9]{5,}")


class Chat(NamedTuple):
    """The parts of the key of a messaging session; `ids` are those of chat, thread and participant, or empty."""

    profile: str
    platform: str
    type: str
    ids: str

    @classmethod
    def of(cls, key: str) -> Chat | None:
        """The parts of a key; None when it is not of a messaging session."""
        found = _SESSION_KEY.fullmatch(key)
        return cls(found[1], found[2], found[3], found[4] or "") if found else None

    @property
    def key(self) -> str:
        """The key that has these parts."""
        return ":".join(filter(None, ("agent", *self)))


def theme_of_chat(chat: Chat, profile: str, chat_id: str, sender: str, person_key: bytes) -> str:
    """The theme of the person or room of a chat.

    `profile` is that of the home, `chat_id` and `sender` are what the host says beside the key, or empty. Raises
    SettingsError without a `person_key`.
    """
    kind = "dm" if chat.type in PRIVATE_CHATS else "group"
    # In a gateway of many profiles the key names the profile, otherwise the home does.
    named = profile if chat.profile == "main" else chat.profile
    ids = _stable_ids(chat.platform, chat.ids, chat_id, sender if kind == "dm" else "")
    name = f"{kind}-{re.sub('[^a-z0-9_]', '_', chat.platform.lower())[:24]}"
    return f"{name}-{digest((named.rstrip('~'), chat.platform, kind, *ids), person_key)}"


def theme_of_person(theme: str, person_key: bytes) -> str:
    """The theme in place of one whose name looks like a person. Raises SettingsError without a `person_key`."""
    return f"{PERSONAL}{digest(('key', personal_keys.canonical(theme)), person_key)}"


def digest(parts: Iterable[str], person_key: bytes) -> str:
    """The keyed hash of some parts. Raises SettingsError without a key."""
    if not person_key:
        raise SettingsError("HERMES_PGVECTOR_PERSON_KEY is empty and no key was generated; set it to a random text")
    # With the lengths, different lists of parts never give the same message.
    message = "".join(f"{len(part)}:{part}" for part in parts)
    return hmac.new(person_key, message.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:16]


def _stable_ids(platform: str, ids: str, chat_id: str, sender: str) -> tuple[str, ...]:
    """The ids that identify a person or room: the chat, or the sender of a private chat without an id.

    Thread and participant follow the id of the chat in the key and are left out.
    """
    if not ids:
        return (sender,) if sender else ()
    scope: tuple[str, ...] = ()
    head, _, rest = ids.partition(":")
    if platform == "slack" and rest and _SLACK_SCOPE.fullmatch(head):
        scope, ids = (head,), rest
    if chat_id and (ids == chat_id or ids.startswith(f"{chat_id}:")):
        return (*scope, chat_id)
    found = _ID.match(ids)
    return (*scope, found[0] if found else ids)
