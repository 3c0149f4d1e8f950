from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.recall.grouping import acknowledges
from hermes_memory_pgvector.text.alike import (
    asks_for_past,
    masked,
    near_equal,
    says_change,
    shape,
    supersedes,
    updates,
    variant,
)

PAIRS = json.loads((Path(__file__).parents[1] / "data" / "alike_pairs.json").read_text(encoding="utf-8"))
TEXTS = st.text(max_size=500) | st.lists(
    st.sampled_from(["port", "wifi", "is", "now", "80", "81", "7,5", "nicht", "mehr", "改为", "密码", "。", "?", "\n"]),
    max_size=30,
).map(" ".join)


def test_the_pairs_are_a_hundred_of_each_kind_in_many_languages() -> None:
    for kind in ("superseded", "both_true"):
        assert len(PAIRS[kind]) == 100
        assert len({language for language, _, _ in PAIRS[kind]}) >= 8


def test_of_pairs_that_are_alike_and_both_true_at_most_two_of_a_hundred_are_marked() -> None:
    marked = [pair for pair in PAIRS["both_true"] if supersedes(pair[2], pair[1]) or supersedes(pair[1], pair[2])]
    assert len(marked) <= 2, marked


def test_most_superseded_texts_are_known_by_the_text_that_supersedes_them() -> None:
    assert sum(supersedes(newer, older) for _, older, newer in PAIRS["superseded"]) >= 75


def test_the_twins_of_the_recall_sets_do_not_supersede_each_other() -> None:
    sets = json.loads((Path(__file__).parents[1] / "data" / "recall" / "newest.json").read_text(encoding="utf-8"))
    said = {row["id"]: row.get("text") or row["user"] for row in sets["rows"]}
    marked = [pair for pair in sets["twins"] if supersedes(said[pair[1]], said[pair[0]])]
    assert len(marked) <= len(sets["twins"]) // 50, marked


@pytest.mark.parametrize(
    ("older", "newer", "whether"),
    [
        ("The wiki has 80 pages.", "The wiki has 81 pages.", True),
        ("The limit is 10 MB for a file.", "The limit is 25 MB for a file.", True),
        ("Support is there until 17:00.", "Support is there until 19:00.", True),
        ("The kelp grows at site 1.", "The kelp grows at site 2.", False),
        ("Host web-03 has 16 GB.", "Host web-04 has 16 GB.", False),
        ("Ticket 17 is fixed in 3.1.", "Ticket 18 is fixed in 3.2.", False),
        ("The wiki runs on port 8080.", "The wiki runs on port 8080.", False),
        ("The key hangs in the shed.", "How is it that the key no longer hangs in the shed?", False),
        ("The key hangs in the shed.", "The key no longer hangs in the shed.", True),
        ("The key hangs in the shed.", "The ladder no longer hangs in the shed.", False),
        ("The car is red.", "The car is now in the garage.", False),
        ("The car is red.", "The car is now blue.", True),
        ("The boat is blue.", "The boat was moved to Kiel.", False),
        ("Der Zug fährt um neun.", "Der Zug fährt ab sofort um zehn.", True),
        ("仓库钥匙在门卫那里。", "仓库钥匙不再在门卫那里。", True),
    ],
)
def test_a_text_supersedes_one_with_its_subject_and_another_value(older: str, newer: str, whether: bool) -> None:
    assert supersedes(newer, older) is whether


def test_a_text_that_says_many_things_supersedes_nothing() -> None:
    newer, more = "The key no longer hangs in the shed.", " It rained for days. The hens are well. We saw a heron."
    assert supersedes(newer, "The key hangs in the shed.")
    assert not supersedes(newer + more, "The key hangs in the shed.")
    assert not supersedes(newer + " Really" * 100, "The key hangs in the shed.")


def test_long_texts_are_not_held_in_memory() -> None:
    text = "The key no longer hangs in the shed of 7 hens. " * 1000
    held = sys.getrefcount(text)
    assert not supersedes(text, "The key hangs in the shed.")
    assert updates(text, "The key hangs in the shed.", "where is the key?")
    assert not says_change(text)
    assert masked(text) == ()
    assert not acknowledges(text)
    assert sys.getrefcount(text) == held


@pytest.mark.parametrize(
    ("query", "older", "newer", "whether"),
    [
        ("what does the dog eat?", "The dog eats kibble.", "For its kidneys the dog now gets boiled rice.", True),
        ("what does the dog eat?", "The dog eats kibble.", "The parrot now gets boiled rice.", False),
        ("what does the dog eat?", "The dog eats kibble.", "For its kidneys the dog gets boiled rice.", False),
        ("what does the dog eat?", "The dog now eats kibble.", "The dog now gets boiled rice.", False),
        ("what does the dog eat?", "The dog eats kibble.", "It rained. What should the dog get now?", False),
        ("how large is my shoe budget?", "I have a shoe budget of $60.", "I am looking for a rack, can you help me? "
         "I want to spend my increased shoe budget of $65, where do I find one?", True),
        ("wer unterrichtet Lotte?", "Herr Baum unterrichtet Lotte.", "Lotte lernt jetzt bei Frau Kern.", True),
        ("客服热线几点有人?", "客服热线早九点到晚六点。", "客服电话改为全天有人接。", True),
        ("민지 선생님은 누구예요?", "민지 선생님은 남 선생님이에요.", "민지는 이제 표 선생님께 배워요.", True),
    ],
)  # fmt: skip
def test_a_text_updates_what_is_asked_for_if_it_says_that_this_has_changed(
    query: str, older: str, newer: str, whether: bool
) -> None:
    assert updates(newer, older, query) is whether


def test_a_text_near_what_is_asked_needs_none_of_its_words_to_say_that_it_has_changed() -> None:
    query, older = "how often is the price list updated?", "The price list is updated every six months."
    newer = "Tariffs are now looked at each Monday."
    assert not updates(newer, older, query)
    assert updates(newer, older, query, near=True)
    assert not updates("Tariffs are looked at each Monday.", older, query, near=True)
    assert not updates("The price tag is now updated every month.", older, query, near=True)
    assert not updates(newer, "It rained.", query, near=True)


@pytest.mark.parametrize(("near", "most"), [(False, 3), (True, 4)])
def test_of_pairs_that_are_both_true_few_are_updates_of_what_is_asked_for(near: bool, most: int) -> None:
    pairs = [pair for _, *pair in PAIRS["both_true"]] + [pair[::-1] for _, *pair in PAIRS["both_true"]]
    assert sum(updates(newer, older, older[: len(older) * 3 // 5], near=near) for older, newer in pairs) <= most
    asked = [updates(newer, older, older[: len(older) * 3 // 5]) for _, older, newer in PAIRS["superseded"]]
    assert sum(asked) >= 75


@pytest.mark.parametrize(
    ("query", "whether"),
    [
        ("What was the wifi password?", True),
        ("what is the wifi password?", False),
        ("How many days passed between the two visits?", True),
        ("Was frisst der Hund?", False),
        ("Wie hieß der Dienst ursprünglich?", True),
        ("以前的密码是什么?", True),
        ("密码是什么?", False),
        ("受付は何時まででしたか?", True),
    ],
)
def test_a_question_for_what_was_is_told_from_one_for_what_is(query: str, whether: bool) -> None:
    assert asks_for_past(query) is whether


@pytest.mark.parametrize(
    ("text", "whether"),
    [
        ("it is NO  longer there", True),
        ("We do not meet there any more.", True),
        ("nothing, nowhere", False),
        ("O treino não é mais aqui.", True),
        ("会议改到周三", True),
        ("会議は水曜に変わりました", True),
        ("no" * 300 + " longer, now", False),
    ],
)
def test_words_of_change_are_whole_words(text: str, whether: bool) -> None:
    assert says_change(text) is whether


def test_reports_that_differ_in_figures_or_a_word_are_near_equal_and_the_odd_one_is_a_variant() -> None:
    first, second, odd, other = (
        shape(text)
        for text in (
            "status of the bridge on 2026 01 02 7 welders on site weather mild no blockers",
            "status of the bridge on 2026 01 03 11 welders on site weather windy no blockers",
            "status of the bridge on 2026 01 04 9 welders on site weather mild an otter family delayed the scaffold",
            "the otter family has moved to the pond behind the mill",
        )
    )
    assert near_equal(first, second)
    assert not near_equal(first, odd)
    assert variant(odd, first)
    assert not variant(other, first)
    assert near_equal(
        shape("10月13日阀门巡检 水压0 33兆帕 阀门53个全部完好"), shape("10月14日阀门巡检 水压0 32兆帕 阀门54个全部完好")
    )
    assert shape("port 5432") == frozenset()


@given(TEXTS, TEXTS)
def test_any_texts_are_compared(one: str, other: str) -> None:
    assert not supersedes(one, one)
    assert not updates(one, one, other)
    assert not supersedes(one, other) or says_change(one) or set(masked(one)) & set(masked(other))
    first, second = shape(one.lower()), shape(other.lower())
    assert near_equal(first, second) is near_equal(second, first)
    assert near_equal(first, first) is bool(first)
    assert not near_equal(first, second) or variant(second, first)
