"""Run in a host's Python: the messages with which the host begins turns by itself, and how its strings begin.

Prints `made`, what the functions and templates of the host make, by where it comes from, `corrections`, the messages
by which a person corrects a running turn, `handed_over`, the question of a turn that was corrected, `in_slack`, a
message in a thread there, `failed`, what stands in place of answers that were never given, `strings`, all strings of
its source that begin like a notice, and `before`, those that begin like what its gateway puts before the words of a
person.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import sysconfig
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

FOLDERS = ("agent", "cron", "gateway", "hermes_cli", "plugins/platforms", "tools", "tui_gateway")
LIKE_A_NOTICE = re.compile(
    r"\[(?:IMPORTANT|SYSTEM|System|INTERNAL|ASYNC|Background|Heartbeat|Continuing|Goal|Session was|/loop|kanban)\b"
    r"|\[(?:Cron|Webhook) delivery:"
    r"|\[The work looks|\[Your active task"
)
BEFORE_WORDS = re.compile(
    r"[\]\s]*\[(?:Replying|Triggering|The user (?:sent|attached)|User sent|If you need|You can examine|Examine it with"
    r"|voice message|New message|Thread context|End of thread)"
)


def module(*names: str) -> Any:
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def templates(found: Any) -> dict[str, str]:
    names = ("_TEMPLATE", "_KICK")
    return {
        name: text for name, text in vars(found or object).items() if name.endswith(names) and isinstance(text, str)
    }


def made() -> dict[str, str]:
    registry = module("tools.process_registry_notifications", "tools.process_registry")
    common = {"session_id": "p1", "command": "make", "output": "[ok]\n\ndone", "exit_code": 0, "pattern": "x"}
    delegation = {"delegation_id": "d1", "goal": "read", "summary": "It is read.", "status": "completed"}
    events = {
        "completion": common, "watch_match": common,
        "watch_disabled": {"message": "Watch patterns disabled for process p1 — too many."},
        "async_delegation": delegation,
    }  # fmt: skip
    found = {kind: registry.format_process_notification({"type": kind, **event}) for kind, event in events.items()}
    batch = {"type": "async_delegation", **delegation, "is_batch": True, "results": [{"task_index": 0, "summary": "x"}]}
    found["batch"] = registry.format_process_notification(batch)
    for name in ("hermes_cli.goals", "hermes_cli.heartbeat", "hermes_cli.loops"):
        found |= {f"{name} {key}": text for key, text in templates(module(name)).items()}
    cron = module("cron.scheduler_prompt", "cron.scheduler")
    found["cron"] = cron._build_job_prompt({"id": "j1", "prompt": "Look at the mail"})
    for catalog in sorted((Path(sysconfig.get_path("data")) / "locales").glob("*.yaml")):
        translated = module("agent.i18n").t("gateway.kanban.wake.message", lang=catalog.stem)
        found[f"kanban {catalog.stem}"] = translated.replace("{task_id}", "7").replace("{title}", "Paint")
    return {name: str(text) for name, text in found.items()}


class Agent:
    """As much of an agent as the functions use that correct a turn."""

    _current_streamed_assistant_text = "It is"
    _checkpoint_mgr = Mock()
    _interrupt_requested = quiet_mode = True

    def _strip_think_blocks(self, text: str) -> str:
        return text

    def _drain_pending_redirect(self) -> str:
        return with_origin("rather today")

    def _persist_session(self, *_: Any) -> None:
        pass


def with_origin(text: str) -> str:
    """What somebody wrote in a messenger, as the host sends it to a running turn."""
    origin = {"chat_id": "+491705551234", "chat_type": "dm", "user_id": "[7]"}
    busy = module("gateway.run_busy").GatewayBusySessionMixin
    unset = ["thread_id", "scope_id", "profile", "parent_chat_id", "chat_id_alt", "user_id_alt"]
    platform = module("gateway.config").Platform.TELEGRAM
    source = SimpleNamespace(
        platform=platform, message_id="8", prospective_thread_id="", **origin, **dict.fromkeys(unset)
    )
    runner = SimpleNamespace(_profile_scope_for_source=lambda _: nullcontext())
    made: str = busy._steer_text_with_origin(runner, text, SimpleNamespace(source=source, message_id="8"))
    return made


def corrections() -> list[dict[str, Any]]:
    """One host has rows for them; the other one adds the text to the result of a tool."""
    prompts, loop = module("agent.prompt_builder"), module("agent.conversation_loop")
    if not hasattr(prompts, "steer_user_row"):
        return [{"role": "user", "content": f"{prompts.STEER_MARKER_OPEN}\nrather today"}]
    messages: list[dict[str, Any]] = [{"role": "tool", "content": "x"}]
    loop._apply_active_turn_redirect(Agent(), messages, with_origin("rather today"))
    return [prompts.steer_user_row(with_origin("rather today")), messages[-1]]


def in_slack(text: str) -> str:
    """What one host makes of a message in a thread of Slack, which several people share."""
    inbound = module("gateway.run_inbound")
    if inbound is None:
        return ""
    source = SimpleNamespace(
        platform=module("gateway.config").Platform.SLACK,
        chat_type="channel",
        thread_id="1",
        user_id="U024BE7LH",
        user_name="Ann",
    )
    prefixed = inbound.GatewayInboundMixin._prefix_inbound_sender_context
    made: str = prefixed(SimpleNamespace(config=None), SimpleNamespace(channel_context=None), source, text)
    return made


def handed_over() -> str:
    """One host adds the correction to the question; the other one begins another turn."""
    begin = getattr(module("agent.turn_iteration_prep"), "begin_iteration", None)
    if begin is None:
        return ""
    begun = {"api_call_count": 1, "interrupted": False, "_turn_exit_reason": "", "conversation_history": []}
    question: str = begin(Agent(), messages=[], original_user_message="When?", **begun).original_user_message
    return question


def strings(beginning: re.Pattern[str]) -> list[str]:
    root = Path(importlib.import_module("agent").__file__ or "").parents[1]
    found: set[str] = set()
    files = [*root.glob("*.py"), *(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))]
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        if beginning.search(text):
            constants = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
            found |= {value[:80] for value in constants if isinstance(value, str) and beginning.match(value)}
    return sorted(found)


def failed() -> list[str]:
    texts = vars(module("agent.turn_failure_copy") or object)
    return [text for name, text in texts.items() if name.endswith("FAILED_TURN_NOTICE")]


def with_skills() -> list[str]:
    """Messages with a skill of a channel, and with one that a person calls, as they come to the memory."""
    build = module("agent.skill_commands")._build_skill_message
    skill = {"content": "Read the file.\n\nThen answer.", "linked_files": {"references": ["references/a.md"]}}
    loaded = '[IMPORTANT: The "garden" skill is auto-loaded. Follow its instructions for this session.]'
    invoked = '[IMPORTANT: The user has invoked the "garden" skill. The full skill content is loaded below.]'
    folder, said = Path("/skills/garden"), "Cut the pear.\n\nAnd the plum."
    channel = "\n\n".join([build(skill, folder, loaded), build({"content": "x"}, folder, loaded), said])
    return [channel, f"{build(skill, folder, loaded)}\n\n{said}", build(skill, folder, invoked, said, "now")]


found = {
    "failed": failed(),
    "in_slack": in_slack("Which barrel leaks?"),
    "with_skills": with_skills(),
    "strings": strings(LIKE_A_NOTICE),
    "before": strings(BEFORE_WORDS),
}
print(json.dumps({"made": made(), "corrections": corrections(), "handed_over": handed_over(), **found}))
