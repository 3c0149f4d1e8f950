from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.hosts.context_record import LiveMessage
from hermes_memory_pgvector.model import Hit, Recall
from hermes_memory_pgvector.recall import render
from hermes_memory_pgvector.recall.shown import Shown, lines_of, memories_in
from hermes_memory_pgvector.text.alike import comparable

HIT = Hit(id=1, theme="ops", content="The lamp of the harbour is green.", at=datetime(2026, 1, 1, tzinfo=UTC))
CHARS_MAX, LIMIT = 2000, 5
ROOM = CHARS_MAX // LIMIT - 80
WORDS = st.sampled_from(
    ("the", "lamp", "of", "harbour", "is", "green", "ships", "see", "it", "at", "night,", "say:", "no")
)
TEXTS = st.lists(WORDS, min_size=1, max_size=400).map(" ".join) | st.text(min_size=1, max_size=900)


def message(text: str, block: str = "") -> LiveMessage:
    sent = f"{text}\n\n<memory-context>\n[System note: recalled]\n\n{block}\n</memory-context>" if block else ""
    return LiveMessage(1, "user", text, sent, 0.0, text)


def block_of(*hits: Hit, query: str = "") -> str:
    return render.block(Recall(hits), chars_max=CHARS_MAX, query=query)


def holds(shown: Shown, hit: Hit, query: str = "") -> bool:
    return shown.holds(hit, query, room=ROOM, chars_max=CHARS_MAX)


@given(st.lists(TEXTS, min_size=1, max_size=LIMIT), st.lists(WORDS, max_size=3).map(" ".join))
def test_what_one_block_showed_of_a_memory_the_next_does_not_repeat(texts: list[str], query: str) -> None:
    hits = [replace(HIT, id=n, content=text) for n, text in enumerate(texts)]
    block = block_of(*hits, query=query)
    shown = Shown().with_messages([message("What of it?", block)], 100)
    everything = "\n".join(comparable(text.strip("…")) for text in memories_in(message("", block).sent))
    for hit in hits:
        if holds(shown, hit, query):
            passage = render.best_passage(hit.content, query, ROOM)
            [wanted] = memories_in(message("", block_of(replace(hit, content=passage))).sent) or [""]
            assert comparable(wanted.strip("…"))[: ROOM // 2].strip() in everything
    if len(block) < CHARS_MAX // 2:
        assert [hit.content for hit in hits if not holds(shown, hit, query) and block_of(hit)] == []


@given(st.lists(TEXTS, max_size=LIMIT), TEXTS)
def test_a_changed_memory_is_shown_again(texts: list[str], text: str) -> None:
    before = [replace(HIT, content=one[:200]) for one in [*texts, text]]
    shown = Shown().with_messages([message("What of it?", block_of(*before))], 100)
    changed = replace(HIT, content=f"{text[:200]} since yesterday")
    assert not holds(shown, changed)


def test_a_passage_of_a_long_memory_that_was_not_shown_is_shown() -> None:
    long = replace(HIT, content=f"{'The harbour is quiet. ' * 60}The lighthouse is red. {'Ships pass. ' * 60}")
    first = Shown().with_messages([message("?", block_of(long, query="harbour"))], 100)
    assert holds(first, long, "harbour")
    assert not holds(first, long, "lighthouse")
    both = first.with_messages([message("?", block_of(long, query="lighthouse"))], 100)
    assert holds(both, long, "lighthouse")


def test_messages_and_lines_of_prompt_and_summary_are_held() -> None:
    shown = Shown(lines_of(f"Notes\n{HIT.content}\n§\nTwo lines,\nof one entry.\n\nTools"))
    assert holds(shown, HIT)
    assert holds(shown, replace(HIT, content="Two lines,\nof one entry."))
    assert not holds(shown, replace(HIT, content="of one"))
    said = Shown().with_messages([message("What a ship, and it is green!")], 100)
    assert holds(said, replace(HIT, content="what a ship and it is GREEN"))
    assert not holds(said, HIT)
    summary = message(f"[CONTEXT COMPACTION — REFERENCE ONLY] Ships.\n\n> {HIT.content}\n\nThat is all.")
    assert holds(Shown().with_messages([summary], 100), HIT)
    assert not holds(Shown().with_messages([summary], 100), replace(HIT, content="The lamp of the harbour"))
    asked = message(
        f"[CONTEXT SUMMARY]\nUser asked (deterministic, from compacted turns): {HIT.content!r}\nThat is all."
    )
    assert holds(Shown().with_messages([asked], 100), HIT)


def test_the_newest_texts_are_kept() -> None:
    hits = [replace(HIT, id=n, content=f"Ship number {n} is in the harbour.") for n in range(6)]
    shown = Shown().with_messages([message(f"About {hit.id}?", block_of(hit)) for hit in hits], 4)
    assert [holds(shown, hit) for hit in hits] == [False, False, True, True, True, True]
    assert (len(shown.whole), len(shown.said), shown.memories) == (4, 4, 4)
    assert not any(holds(Shown().with_messages([message("?", block_of(hit))], 0), hit) for hit in hits)


def test_an_entry_that_is_left_out_is_pointed_at_once() -> None:
    entry = replace(HIT, target="memory", withheld="third parties", pointer=True)
    shown = Shown().with_messages([message("why?", block_of(entry))], 10)
    assert holds(shown, entry)
    assert not holds(shown, replace(entry, id=2))
    assert not holds(shown, replace(entry, pointer=False, withheld=""))
    assert holds(Shown(prompt=lines_of(entry.content)), replace(entry, id=2))
