"""Who talks in a session, as the host says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ..text.keep import PRIVATE_CHATS, TERMINALS, Source
from .chats import Chat

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
