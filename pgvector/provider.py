"""PgvectorMemoryProvider: the hooks of the host, each a few lines onto the runtime, behind one guard."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent.memory_provider import MemoryProvider

from .errors import SettingsError
from .hosts.environment import hermes_home
from .hosts.guard import failed_call, guarded, nothing
from .hosts.installation import pip_install
from .recall import render
from .recall.prefetch import ambient, begin, lasting, offered
from .session.capture import small_talk
from .session.themes import Identity
from .settings import Settings, load
from .text.cleaning import clean

if TYPE_CHECKING:
    from .session.conversation import Conversation

NEEDED_PACKAGES = ("psycopg", "psycopg_pool", "pgvector", "httpx", "numpy")


class PgvectorMemoryProvider(MemoryProvider):
    """One conversation's view of the memory.

    Every hook is safe on any thread, before `initialize` and after `shutdown`.
    """

    def __init__(self) -> None:
        self._conversation: Conversation | None = None
        self._recalled = 0
        self._inspected = False

    @property
    def name(self) -> str:
        """The name in `memory.provider`."""
        return "pgvector"

    # Availability

    def is_available(self) -> bool:
        """Whether it could work: packages and settings, nothing is contacted."""
        return not self.unavailable_reason()

    def unavailable_reason(self) -> str:
        """What to install or to set; empty when nothing is wrong."""
        missing = [package for package in NEEDED_PACKAGES if importlib.util.find_spec(package) is None]
        if missing:
            return f"missing packages: {', '.join(missing)}; run: {pip_install()}"
        try:
            settings = load(hermes_home())
        except SettingsError as error:
            return str(error)
        from .store.connection.database import unusable

        return unusable(settings)

    # Life

    @guarded(nothing)
    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Take part in a session. Returns at once; the database is reached in the background."""
        from .runtime import acquire, release
        from .session.conversation import Conversation

        home = kwargs.get("hermes_home") or hermes_home()
        runtime = acquire(load(home), home)
        before, identity = self._conversation, Identity.of(kwargs)
        context = str(kwargs.get("agent_context") or "primary")
        self._conversation = Conversation(runtime, identity, session_id or "", context)
        if before is not None:
            release(before.runtime)
        runtime.writer.wake()
        if self._conversation.primary:
            runtime.reconcile(identity, self._conversation.session_id)
            if identity.platform != "api_server":
                # Where a turn was taken back while no agent was there, nobody tells.
                runtime.in_background(self._conversation.take_back)

    def initialize_for_inspection(self, session_id: str = "", **kwargs: Any) -> None:  # noqa: ARG002
        """Be looked at without taking part: no thread, file or connection is opened."""
        self._inspected = True

    @guarded(nothing)
    def shutdown(self) -> None:
        """Leave the session; the last one of the process drains what is pending, within a bound."""
        from .runtime import release

        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            release(conversation.runtime)

    @guarded(str)
    def system_prompt_block(self) -> str:
        """The same few lines always, because they are part of the host's cached prompt."""
        from .tools.prompt import prompt

        return prompt(self._settings()) if self._conversation is not None or self._inspected else ""

    # Recall

    @guarded(str)
    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """The memories for this very question, within the budget; empty for small talk."""
        self._recalled = 0
        conversation = self._conversation
        if conversation is None:
            return ""
        if notice := conversation.notice(query):
            return notice
        if small_talk(query):
            return ""
        runtime, theme = conversation.runtime, conversation.theme()
        settings = runtime.settings
        if theme is None or not offered(settings):
            return ""
        recall = ambient(runtime, theme, clean(query), session_id or conversation.session_id)
        self._recalled = len(recall.hits)
        return render.block(recall, chars_max=settings.prefetch_chars_max, query=query)

    @guarded(nothing)
    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:  # noqa: ARG002
        """Nothing to prepare: `prefetch` answers its own question; the connection is kept warm."""
        if self._conversation is not None:
            self._conversation.runtime.writer.wake()

    @guarded(nothing)
    def recall_status(self) -> Any:
        """What the last prefetch brought, for hosts that show it."""
        try:
            from agent.memory_provider import RecallStatus
        except ImportError:
            return None
        return RecallStatus(provider_label="pgvector", count=self._recalled) if self._recalled else None

    @guarded(list[dict[str, Any]])
    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """The tools that the settings offer; hosts ask before `initialize`, too."""
        from .tools.toolset import schemas

        return schemas(self._settings())

    @guarded(failed_call)
    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:  # noqa: ARG002
        """Run a tool; the answer is JSON, an error too."""
        from .tools.toolset import call

        conversation = self._conversation
        if conversation is None:
            return json.dumps({"error": self.unavailable_reason() or "the memory is not initialized"})
        theme = conversation.theme()
        if theme is None:
            return json.dumps({"error": "this theme is not in allowed_themes"})
        return call(conversation.runtime, tool_name, args or {}, conversation.caller(theme))

    def _settings(self) -> Settings:
        return load(hermes_home()) if self._conversation is None else self._conversation.runtime.settings

    # Writing

    @guarded(nothing)
    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: Sequence[Mapping[str, Any]] | None = None,  # noqa: ARG002
        turn_author: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep a turn, if it is substantive."""
        if self._conversation is not None:
            author = str((turn_author or {}).get("id") or "")
            self._conversation.take_turn(user_content, assistant_content, session_id, author)

    @guarded(nothing)
    def on_memory_write(
        self, action: str, target: str, content: str, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Mirror a change of the built-in memory."""
        if self._conversation is not None:
            self._conversation.change_entry(action, target, content, metadata or {})

    @guarded(nothing)
    def on_delegation(self, task: str, result: str, *, child_session_id: str = "", **kwargs: Any) -> None:  # noqa: ARG002
        """Keep what was given to a child agent and what came back."""
        if self._conversation is not None:
            self._conversation.delegate(task, result, child_session_id or "")

    @guarded(nothing)
    def on_session_end(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Keep the turns that were missed; the host calls this more than once a session and replays all."""
        if self._conversation is not None:
            self._conversation.end(messages or ())

    # Session

    @guarded(nothing)
    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """Note that a turn is open, who began it, and whether a conversation begins or goes off the record with it."""
        conversation = self._conversation
        if conversation is None:
            return
        conversation.open_turn(message, str(kwargs.get("author_id") or ""))
        if turn_number == 1:
            begin(conversation.runtime, conversation.theme(), conversation.session_id)

    @guarded(nothing)
    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        """Go on under another session id, or without the turns that were taken back; see whether files were edited."""
        conversation = self._conversation
        if conversation is None:
            return
        if rewound:
            conversation.take_back()
            return
        conversation.go_on(new_session_id, parent_session_id, anew=reset, reason=str(kwargs.get("reason") or ""))
        if conversation.primary:
            conversation.runtime.reconcile(conversation.identity, conversation.session_id)

    @guarded(str)
    def on_pre_compress(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The few saved memories that matter to what is compressed: they stand in none of its messages."""
        conversation = self._conversation
        theme = conversation.theme() if conversation is not None else None
        return "" if conversation is None or theme is None else lasting(conversation.runtime, theme, messages or ())

    # Set-up

    def post_setup(self, hermes_home: str, config: dict[str, Any]) -> None:
        """Take the user through the set-up in the terminal; the host leaves everything to this hook."""
        from .admin.setup.wizard import wizard

        wizard(hermes_home, config)

    @guarded(list[dict[str, Any]])
    def get_config_schema(self) -> list[dict[str, Any]]:
        """The few settings that a new user may want."""
        from .admin import panel

        return panel.fields()

    def save_config(self, values: Mapping[str, Any], hermes_home: str) -> None:
        """Keep settings that are not secret. Raises ValueError, which hosts show, for a value that is not allowed."""
        from .admin import panel

        panel.save(values, hermes_home)

    @guarded(dict[str, Any])
    def get_status_config(self, config: Mapping[str, Any] | None = None) -> dict[str, Any]:  # noqa: ARG002
        """What `hermes memory status` shows: where the memory is and what embeds it, without secrets."""
        from .admin import panel

        return panel.status(hermes_home())

    @guarded(list[str])
    def backup_paths(self) -> list[str]:
        """The folder with a dump of the embedded server, made now; a Postgres of one's own is not backed up here."""
        from .admin import panel

        return panel.backups(hermes_home())

    @guarded(dict[str, Any])
    def identity_signature(self) -> dict[str, Any]:
        """What must renew a cached agent when it changes: the settings that decide whose memory it is."""
        from .admin import panel

        return dict(panel.identity(hermes_home()))
