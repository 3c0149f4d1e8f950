"""What a host has written into its record once more is left out, and nothing else is lost."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.hosts.record_copies import without_copies
from hermes_memory_pgvector.hosts.transcript import is_summary

SUMMARY = "[CONTEXT COMPACTION — REFERENCE ONLY] They talked."
MESSAGES = st.lists(
    st.fixed_dictionaries({
        "role": st.sampled_from(["user", "assistant"]),
        "content": st.sampled_from(["a", "b", "c", "a\n\nb", SUMMARY, ""]),
        "tool_calls": st.sampled_from([None, "[]"]),
        "taken_back": st.booleans(),
        "compacted": st.booleans(),
        "step_s": st.sampled_from([0, 1e-6, 3e-6, 1]),
        "rows": st.sampled_from([1, 2, 9]),
    }),
    max_size=25,
)  # fmt: skip


def recorded(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    messages, at, number = list[dict[str, Any]](), 1000.0, 0
    for step in steps:
        at, number = at + step["step_s"], number + step["rows"]
        messages.append({**step, "written": at, "id": number})
    return messages


@given(MESSAGES)
def test_what_was_said_stays_at_least_once_and_in_order(steps: list[dict[str, Any]]) -> None:
    messages = recorded(steps)
    kept = without_copies(messages)
    numbers = [message["id"] for message in kept]
    assert numbers == sorted(set(numbers))

    def answers(of: list[dict[str, Any]]) -> set[str]:
        said = [message for message in of if message["role"] == "assistant"]
        return {message["content"] for message in said if not is_summary(message, message["content"])}

    assert answers(kept) == answers(messages)


@given(MESSAGES)
def test_without_a_compression_only_what_has_the_same_time_is_a_copy(steps: list[dict[str, Any]]) -> None:
    messages = recorded([{**step, "compacted": False, "step_s": step["step_s"] or 1} for step in steps])
    assert without_copies(messages) == messages


def test_what_a_host_writes_once_more_when_a_compressed_session_is_left_is_left_out() -> None:
    said = [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", SUMMARY), ("user", "d"), ("assistant", "e")]
    talked = [*said[:3], ("assistant", "f"), *said[4:]]
    times = [*(10.0 * place for place in range(6)), *(100 + 1e-6 * place for place in range(6))]
    times += [*(101 + 0.01 * place for place in range(6)), 200, 210]
    # The last turn is said again, after it.
    messages = [
        {"id": place, "role": role, "content": content, "tool_calls": None, "taken_back": False,
         "compacted": place < len(talked), "written": at}
        for place, ((role, content), at) in enumerate(zip([*talked, *said, *said, *said[4:]], times, strict=True))
    ]  # fmt: skip
    kept = [(message["role"], message["content"]) for message in without_copies(messages)]
    assert kept == [*talked, *said[4:]]
    for message in messages[:-2]:
        message["compacted"] = True
    assert [(message["role"], message["content"]) for message in without_copies(messages)] == kept
    messages[-3]["taken_back"] = True
    back = [message["content"] for message in without_copies(messages) if message["taken_back"]]
    assert back == ["e"]


def test_questions_that_a_host_has_merged_before_its_summary_are_left_out() -> None:
    said = [("user", "a"), ("assistant", "b"), ("user", "c"), ("user", "d"), ("assistant", "e"), ("user", "f")]
    written = [*said[:2], ("user", "c\n\nd"), ("assistant", SUMMARY), said[-1]]
    times = [*(10.0 * place for place in range(6)), *(100 + 1e-6 * place for place in range(5))]
    messages = [
        {"id": place, "role": role, "content": content, "tool_calls": None, "taken_back": False,
         "compacted": place < len(said), "written": at}
        for place, ((role, content), at) in enumerate(zip([*said, *written], times, strict=True))
    ]  # fmt: skip
    assert [(message["role"], message["content"]) for message in without_copies(messages)] == said
