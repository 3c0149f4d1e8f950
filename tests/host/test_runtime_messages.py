"""The marks of the messages that a host writes in the place of a person are those of the installed hosts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes_memory_pgvector.hosts.additions import NEW_MESSAGE, PREFIXES, THREAD, THREAD_END, written
from hermes_memory_pgvector.hosts.runtime_messages import NOTES, corrections, mark_of, opening
from hermes_memory_pgvector.hosts.transcript import FAILED

if TYPE_CHECKING:
    from conftest import Host

# Instructions to the judge of a goal, which no agent with a memory gets.
JUDGE = "JUDGE_"
# How strings of the hosts begin that look like a notice and are none: words of a person stand in such a message, or no
# agent gets it. `[IMPORTANT: ` is followed by a text that `made` has.
NO_NOTICES = {
    '[IMPORTANT: ', '[IMPORTANT: The "', "[IMPORTANT: The user has invoked the ",
    '[IMPORTANT: The user has invoked the "', '[IMPORTANT: The user launched this CLI session with the "',
    "[SYSTEM]", "[kanban-worker-exit] rc=", "[kanban] in-place recovery skipped for ", "[kanban] provider failure on ",
}  # fmt: skip
# What only one of the hosts puts before the words of a person.
OF_ONE_HOST = {"[You can examine it with ", "[Examine it with "}
# Beginnings with which a host compares messages.
SHORTER = {"[ASYNC DELEGATION", "[IMPORTANT: Background", "[Your active task list"}


def test_every_message_with_which_the_host_begins_a_turn_has_a_mark(host: Host, tmp_path: Path) -> None:
    found = host.script("runtime_messages.py", home=tmp_path)
    made: dict[str, str] = {name: text for name, text in found["made"].items() if JUDGE not in name}
    assert len(made) > 10
    assert [name for name, text in made.items() if not mark_of(text)] == []
    corrected = [corrections(message, message["content"]) for message in found["corrections"]]
    assert corrected == [["rather today"]] * (2 if host.name == "b" else 1)
    if host.name == "b":
        assert "U024BE7LH" in found["in_slack"]
        assert written(found["in_slack"]) == "[Ann] Which barrel leaks?"
        assert opening(found["handed_over"]) == "When?"
        assert written(found["handed_over"]) == "When?\n\nUser correction during the turn: rather today"
    assert set(found["failed"]) == (FAILED if host.name == "b" else set())
    assert written(made["cron"]) == "Look at the mail"
    assert {written(text) for text in found["with_skills"]} == {"Cut the pear.\n\nAnd the plum."}
    unknown = {text for text in found["strings"] if not mark_of(f"{text}…")}
    assert unknown - NO_NOTICES - SHORTER == set(), "new strings of the host: are they notices, or words of a person?"
    known = {*PREFIXES, NEW_MESSAGE, THREAD_END.rstrip("\n")} - {*NOTES}
    before = {prefix for prefix in known if any(prefix in text for text in found["before"])}
    assert before | OF_ONE_HOST == known
    assert any(map(THREAD.match, found["before"]))
