"""PgvectorMemoryProvider: the hooks that the hosts call, each a few lines behind a guard.

Hosts execute this module when they look for plugins, so each hook imports what it needs.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.memory_provider import MemoryProvider

from .admin.setup_hooks import SetupHooks
from .background import DeferredCalls, importing
from .errors import CheckpointFailed, SettingsError
from .hosts.environment import hermes_home, host_module
from .hosts.guard import failed_call, guarded, log, nothing
from .hosts.notices import Notifier
from .model import now
from .settings import Settings, load

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from .runtime import Runtime
    from .session.conversation import Conversation

# The first session of a process begins so long after `initialize`, unless a hook needs it before.
BEGIN_AFTER_S = 0.02


class _Session(NamedTuple):
    runtime: Runtime
    conversation: Conversation
    notifier: Notifier


class PgvectorMemoryProvider(SetupHooks, MemoryProvider):
    """The memory of one conversation.

    Every hook is safe on any thread, before `initialize` and after `shutdown`. No hook raises, but those of the set-up
    (`post_setup`, `save_config`) and `on_pre_compress` when a checkpoint is required.
    """

    # Read by hosts: `on_pre_compress` makes durable what is compressed.
    pre_compress_checkpoint_api_version = 2
    _imported = False

    def __init__(self) -> None:
        self._begun: _Session | None = None
        self._deferred = DeferredCalls()
        self._settings: Settings | None = None
        self._recalled = 0
        self._inspected = False

    @property
    def name(self) -> str:
        """The name in `memory.provider`."""
        return "pgvector"

    # Start and end

    def is_available(self) -> bool:
        """Whether packages and settings are there. Contacts no service."""
        return not self.unavailable_reason()

    def unavailable_reason(self) -> str:
        """What to install or to set; empty when nothing is missing."""
        from .hosts.installation import missing_packages

        if missing := missing_packages():
            return missing
        try:
            settings = load(hermes_home())
        except SettingsError as error:
            return str(error)
        from .store.connection.dsn import unusable

        return unusable(settings)

    @guarded(nothing)
    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Start a session. Returns at once; the database is connected in the background.

        The first session of a process begins there, too: to import what it needs takes longer than a hook may.
        """
        home = kwargs.get("hermes_home") or hermes_home()
        self._deferred.make()
        self._settings = settings = load(home)
        if PgvectorMemoryProvider._imported:
            self._begin(settings, home, session_id, kwargs)
            return
        self._deferred.add(self._begin, settings, home, session_id, kwargs)
        with suppress(RuntimeError):  # no thread can be started: the first hook begins the session
            Thread(target=self._begin_soon, name="hermes-pgvector-begin", daemon=True).start()

    def _begin_soon(self) -> None:
        time.sleep(BEGIN_AFTER_S)
        self._deferred.make()
        with importing():
            from .tools import toolset  # noqa: F401

    @property
    def _session(self) -> _Session | None:
        self._deferred.make()
        return self._begun

    @guarded(nothing)
    def _begin(self, settings: Settings, home: str | Path, session_id: str, kwargs: Mapping[str, Any]) -> None:
        from .outbox.pending_writes import PendingWrites
        from .runtime import acquire, release
        from .session.conversation import Conversation
        from .session.identity import Identity

        PgvectorMemoryProvider._imported = True
        runtime = acquire(settings, home)
        before, identity = self._begun, Identity.of(kwargs)
        context, folder = str(kwargs.get("agent_context") or "primary"), str(kwargs.get("cwd") or "")
        conversation = Conversation(runtime.context, identity, str(session_id or ""), context, folder)
        self._begun = _Session(runtime, conversation, Notifier(kwargs))
        if before is not None:
            release(before.runtime)
        runtime.make_files()
        runtime.wake()
        if conversation.session.primary:
            runtime.reconcile(identity, conversation.session.id)
            runtime.after_start(PendingWrites(runtime.home.state, runtime.settings).delete_expired)
            if identity.platform != "api_server":
                # No hook is called for turns that were taken back while no agent was running.
                runtime.after_start(conversation.replay.take_back)

    def initialize_for_inspection(self, session_id: str = "", **kwargs: Any) -> None:  # noqa: ARG002
        """Let the host read prompt and tools. No thread, file or connection is opened."""
        self._inspected = True

    @guarded(nothing)
    def shutdown(self) -> None:
        """End the session. The last session of the process writes what is pending, within a time limit."""
        from .runtime import release

        session, self._begun, self._settings = self._session, None, None
        if session is not None:
            guarded(nothing)(session.conversation.leave)()
            release(session.runtime)

    @guarded(str)
    def system_prompt_block(self) -> str:
        """The paragraph about the memory. It depends on the settings alone, because hosts cache the prompt."""
        from .tools.prompt import prompt

        return prompt(self._settings or load(hermes_home())) if self._settings or self._inspected else ""

    # Recall

    @guarded(str)
    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """News of an outage, and the memories that are recalled for this question, within `prefetch_budget_s`."""
        self._recalled = 0
        if self._session is None:
            return ""
        runtime, conversation, notifier = self._session
        memories = self._memories(runtime, conversation, query, session_id)
        return "\n\n".join(filter(None, (notifier.tell(conversation.notices(query)), memories)))

    def _memories(self, runtime: Runtime, conversation: Conversation, query: str, session_id: str) -> str:
        from .session.off_record import notice

        late, off = conversation.late_switch(), runtime.settings.off_record
        if switched := notice(query, always_off=off) or notice(late, always_off=off):
            return switched
        theme = None if conversation.why_no_recall(query) else conversation.session.allowed_theme()
        if theme is None or not (runtime.prefetch.enabled or runtime.settings.injects_facts):
            return ""
        client, session = conversation.session.identity.platform == "api_server", session_id or conversation.session.id
        text, self._recalled = runtime.prefetch.text_before_turn(theme, query, session, client, runtime.own(theme))
        return text

    @guarded(nothing)
    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:  # noqa: ARG002
        """Keep the connection open for the next `prefetch`. Nothing is recalled in advance."""
        if self._session is not None:
            self._session.runtime.wake()

    @guarded(nothing)
    def recall_status(self) -> Any:
        """How many memories the last `prefetch` returned, for hosts that show it."""
        status = getattr(host_module("agent.memory_provider"), "RecallStatus", None)
        return status(provider_label="pgvector", count=self._recalled) if status and self._recalled else None

    @guarded(list[dict[str, Any]])
    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """The schemas of the tools. Hosts ask before `initialize`, too."""
        from .tools.schemas import schemas

        return schemas(self._settings or load(hermes_home()))

    @guarded(failed_call)
    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:  # noqa: ARG002
        """Run a tool. Returns JSON, also for an error."""
        from .tools.toolset import call

        if self._session is None:
            return json.dumps({"error": self.unavailable_reason() or "the memory is not initialized"})
        runtime, conversation, _ = self._session
        theme = conversation.session.allowed_theme()
        if theme is None:
            return json.dumps({"error": "this theme is not in allowed_themes"})
        return call(runtime, tool_name, args or {}, conversation.caller(theme))

    # Writing

    @guarded(nothing)
    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: Sequence[Mapping[str, Any]] | None = None,
        turn_author: Mapping[str, Any] | None = None,
    ) -> None:
        """Store a turn, if a person began it and it is substantive."""
        from .hosts.tool_calls import read_turn

        if self._session is not None:
            (runtime, conversation, _), seen = self._session, messages or ()
            runtime.prefetch.note_replay(session_id or conversation.session.id, seen)
            record = read_turn(seen, user_content, runtime.settings.trusted_tools)
            author = str((turn_author or {}).get("id") or "")
            conversation.take_turn(user_content, assistant_content, session_id, author, record)

    @guarded(nothing)
    def on_memory_write(
        self, action: str, target: str, content: str, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Mirror a change of the built-in memory."""
        if self._session is not None:
            self._session.conversation.change_entry(action, target, content, metadata or {})

    @guarded(nothing)
    def on_delegation(self, task: str, result: str, *, child_session_id: str = "", **kwargs: Any) -> None:  # noqa: ARG002
        """Store a task for a child agent and its result."""
        if self._session is not None:
            self._session.conversation.delegate(task, result, child_session_id or "")

    @guarded(nothing)
    def on_session_end(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Store the turns that were missed. Hosts call this more than once a session, with the whole transcript."""
        if self._session is not None:
            self._session.conversation.replay.end(messages or ())

    # Session

    @guarded(nothing)
    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """Note that a turn began, and who speaks. Its message may switch the session off or on the record."""
        self._deferred.make_in_turn(self._open_turn, turn_number, message, str(kwargs.get("author_id") or ""), now())

    @guarded(nothing)
    def _open_turn(self, turn_number: int, message: str, author: str, began: datetime) -> None:
        if self._begun is None:
            return
        runtime, conversation, _ = self._begun
        theme = conversation.open_turn(message, author, began=began)
        if turn_number == 1:
            runtime.prefetch.begin(theme, conversation.session.id)
        if runtime.settings.injects_facts and conversation.session.primary and conversation.session.allowed_theme():
            runtime.in_background(runtime.facts.begin, conversation.caller(theme), turn_number, str(message), began)

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
        """Continue under another session id, or withdraw the turns that were taken back."""
        if self._session is None:
            return
        runtime, conversation, _ = self._session
        if rewound:
            conversation.replay.take_back()
            return
        conversation.go_on(new_session_id, parent_session_id, anew=reset, reason=str(kwargs.get("reason") or ""))
        if conversation.session.primary:
            runtime.reconcile(conversation.session.identity, conversation.session.id)

    @guarded(str, raises=CheckpointFailed)
    def on_pre_compress(self, messages: Sequence[Mapping[str, Any]], *, require_checkpoint: bool | None = None) -> str:
        """The few entries that matter to the messages that are compressed and are in none of them.

        A host that knows checkpoints says whether it requires one; then the turns in the messages are made to survive
        a power loss. Raises CheckpointFailed when they may not and it is required: the host then compresses nothing.
        """
        if require_checkpoint is not None:
            self._checkpoint(messages or (), required=require_checkpoint)
        if self._session is None:
            return ""
        runtime, conversation, _ = self._session
        theme = conversation.session.allowed_theme()
        return "" if theme is None else runtime.prefetch.before_compression(theme, messages or ())

    def _checkpoint(self, messages: Sequence[Mapping[str, Any]], *, required: bool) -> None:
        try:
            if self._session is None:
                raise CheckpointFailed(self.unavailable_reason() or "the memory is not initialized")
            self._session.runtime.checkpoint(self._session.conversation.replay, messages)
        except CheckpointFailed as error:
            log.log(logging.WARNING if required else logging.INFO, "no checkpoint before a compression: %s", error)
            if required:
                raise
