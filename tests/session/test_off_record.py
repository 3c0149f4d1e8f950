from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from hermes_memory_pgvector.session.off_record import (
    ONE_MESSAGE,
    SWITCHED_OFF,
    aside,
    notice,
    on_record,
    recorded,
    switch,
    unrecorded,
)

OFF, ON = ("off the record", "I forget all that."), ("on the record", "I listen.")


@pytest.mark.parametrize(
    "message", ["off the record", "Off the record.", " OFF-RECORD! ", "go off the record", "off record"]
)
def test_a_message_that_says_nothing_else_takes_a_session_off_the_record(message: str) -> None:
    assert switch(message) is True


@pytest.mark.parametrize(
    "message",
    [
        "on the record",
        "Back on the record!",
        "we are on the record",
        "You can go back on the record",
        "never mind, on the record",
    ],
)
def test_a_message_that_says_nothing_else_puts_it_on_again(message: str) -> None:
    assert switch(message) is False


@pytest.mark.parametrize(
    "message",
    [
        "off the record please", "let's go off the record", "ok, off the record", "we're off the record",
        "@hermes off the record",
        "<@U024BE7LH> off the record", "[Ann] off the record", "off the re\u200bcord", "ｏｆｆ ｔｈｅ ｒｅｃｏｒｄ",
        "Can we go off the record?", "From now on, everything off the record, okay?", "Off the record. My PIN is 1234",
        "My PIN is 1234.\nOff the record please.", "bitte off the record", "Das ist nicht fürs Protokoll",
        "ab jetzt nicht mitschreiben bitte", "hors micro s'il te plaît", "esto es extraoficialmente", "agora em off",
        "questo è a microfoni spenti", "接下来不要记录", "ここからオフレコでお願いします", "지금부터 오프 더 레코드",
        "это не для протокола",
        "[off the record]", "Off the record… My PIN is 1234", "Hi Hermes! Off the record please. I quit on Friday.",
        "off the record for the rest of this chat", "let's take this off the record", "this is not on the record",
        "this stays off the record", "I want this off the record", "All of this must stay off the record",
        "I need the next part off the record", "<off the record>", "Never mind, off the record",
        "Don't record this please", "nicht für's Protokoll", "请不要记录", "기록하지 말아주세요",
    ],
)  # fmt: skip
def test_politeness_addresses_and_other_languages_take_nothing_from_it(message: str) -> None:
    assert switch(message) is True
    assert notice(message, always_off=False) == SWITCHED_OFF


@pytest.mark.parametrize(
    "message",
    [
        "off the record: my PIN is 1234", "this is off the record: my PIN is 1234", "off the record, my name is Ann",
        "Ok, this is off the record, my name is Ann", "My PIN is 1234 (off the record)",
        "My PIN is 1234, off the record.",
        "off the record my pin is 1234", "Off the record - I quit on Friday",
        "nicht fürs Protokoll: meine PIN ist 1234",
        "[off the record] my PIN is 1234", "[Ann] [off the record: my PIN is 1234]", "off the record -> my PIN is 1234",
        "btw off the record, my PIN is 1234", "this is off the record but I quit", "strictly off the record I quit",
        "オフレコで、私の番号は1234です", "不要记录：我的密码是1234", f"off the record: {'my PIN is 1234 ' * 500}",
    ],
)  # fmt: skip
def test_one_message_can_be_off_the_record(message: str) -> None:
    assert (switch(message), aside(message), unrecorded(message)) == (None, True, True)
    assert notice(message, always_off=False) == ONE_MESSAGE
    assert on_record([("q1", "a1"), (message, "Fine."), ("q2", "a2")]) == [("q1", "a1"), ("q2", "a2")]


@pytest.mark.parametrize("speaker", ["", "[Ann] "])
@pytest.mark.parametrize(
    "said", ["off the record: my PIN is 1234", "off the record", "My PIN is 1234. Off the record."]
)
def test_a_message_that_a_host_merged_with_one_that_it_had_not_answered_is_not_stored(said: str, speaker: str) -> None:
    for parts in (("q1", said), ("q1", said, "q2"), (said, "q2")):
        question = "\n\n".join(speaker + part for part in parts)
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": "a"}]
        assert recorded(messages, merged=True) == []
    assert recorded([{"role": "user", "content": "q1\n\nq2"}], merged=True) == [("q1\n\nq2", "")]


BEFORE_WORDS = (
    '[Replying to: "Berlin on Monday.\nShall I book [1]?"]\n\n',
    '[Replying to your previous message: "Off the record?"]\n\n',
    "[Triggering message id: `1234567890` — use as `message_id` for reply/react/pin via the discord tools.]\n\n",
    "[The user sent a document: 'a.pdf'. It is saved at: /a.pdf. Ask the user what they'd like you to do with it.]\n\n",
    "[The user sent an image~ Here's what I can see:\nA cat.]\n[If you need a closer look, use vision_analyze ~]\n\n",
    "[Recent channel messages]\n[Bob] hello\n\n[New message]\n",
)  # fmt: skip


@pytest.mark.parametrize("speaker", ["", "[Ann] "])
@pytest.mark.parametrize("before", [*BEFORE_WORDS, BEFORE_WORDS[2] + BEFORE_WORDS[0]])
def test_what_a_gateway_puts_before_the_words_of_a_person_hides_no_switch(before: str, speaker: str) -> None:
    said = {text: before + speaker + text for text in ("off the record", "on the record", "thanks")}
    assert [switch(text) for text in said.values()] == [True, False, None]
    assert aside(f"{before}{speaker}off the record: my PIN is 1234")
    assert not unrecorded(said["thanks"])


MENTIONS = (
    "are we on the record?", "Should I stay on the record?", '[Replying to: "it is off the record"]\n\nok',
    "what does off the record mean?", "off the records", "the off-record interview in the article",
    "turn off recording",
    "Add a column off_record to the table", "Summarise the minister's off the record remarks",
    "the record player is off",
    "Is 'off the record' a legal term?", "How do I switch the bot off the record in settings?", "",
    "take the record off",
    "He talked off the record to three papers", "Explain the difference between on the record and off the record",
    "Make the title: Tales Told Off the Record", "Set the spool to off and record the metrics",
    "Who said it on the record?",
    "Which sessions are off the record right now in the database?", "The off-the-record policy needs a second reviewer",
    "Write a test for off_record.py", "Why did `off_record` stay true after the restart?",
    "the record was set off the coast",
    "Translate 'off the record' into German", "Was ist der Unterschied zwischen off the record und unter drei?",
    "Das Protokoll der Sitzung fehlt noch", "Kannst du das Meeting mitschreiben?", "Der Recorder ist aus",
    "Nicht fürs Protokoll bestimmte Notizen gehören in den Ordner privat",
    "Wo steht, dass wir Anrufe nicht aufzeichnen dürfen?",
    "Enregistre la réunion de demain", "Le micro est hors service", "Que signifie hors micro en français?",
    "¿Qué significa extraoficialmente?", "El registro está fuera de servicio", "Registra la reunión de mañana",
    "O que significa em off no jornalismo?", "Registre a reunião de amanhã", "Cosa vuol dire ufficiosamente?",
    "Registra la riunione di domani", "Запиши протокол встречи", "Что значит не для протокола?", "什么叫不作记录？",
    "请记录今天的会议", "记录一下数据库的端口", "オフレコとはどういう意味ですか", "会議を記録してください",
    "오프 더 레코드가 무슨 뜻이야?", "회의를 기록해 줘", "Our record label signs off the contract on Monday",
    "Set record=off in nginx.conf", "the DNS record is off by one", "Play it off the record, not off the tape deck",
    "A record, off by two rows, broke the import", "Off we go: record the demo", "Record off-site backups in the wiki",
)  # fmt: skip


@pytest.mark.parametrize("message", [*MENTIONS, None, [], 7])
def test_what_only_mentions_the_words_switches_nothing(message: object) -> None:
    assert not unrecorded(message)


def test_what_was_said_off_the_record_is_not_in_a_transcript() -> None:
    one, two, three = (("q1", "a1"), ("q2", "a2"), ("q3", "a3"))
    assert on_record([one, OFF, two, ON, three]) == [one, three]
    assert on_record([one, OFF, two]) == [one]
    # The beginning is lost: what stands before "on the record" was said off it, as far as anybody can tell.
    assert on_record([one, two, ON, three]) == [three]
    # So is a middle that was compressed, with the message that took the session off the record once more.
    assert on_record([one, OFF, ON, two, ("", ""), three, ON]) == [one, two]
    assert on_record([one, ON, two, ON, three]) == [two, three]


def test_a_turn_is_off_the_record_by_its_question_or_what_corrects_it() -> None:
    steers = [{"role": "user", "content": said, "display_kind": "steer"} for said in (OFF[0], "off the record: 1234")]
    one, two = (
        [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        for question, answer in (("q1", "a1"), ("q2", "a2"))
    )
    on = {"role": "user", "content": ON[0]}
    assert recorded([on, *one, *two, steers[1], *one]) == [("q1", "a1")] * 2
    job = [{"role": "user", "content": "[IMPORTANT: Background process 1 ended]"}, one[1]]
    assert recorded([on, *one, *job, steers[0], *two]) == [("q1", "a1")]
    # What holds for one message takes no switch back.
    for order in (steers, steers[::-1]):
        assert recorded([on, *one, *two, *order, *one, on, *two]) == [("q1", "a1"), ("q2", "a2")]


@given(st.lists(st.sampled_from([OFF, ON, ("", "")]), max_size=10), st.integers(0, 9), st.integers(0, 9))
@example([("", ""), ON, OFF], 1, 2)
def test_a_transcript_without_its_middle_contains_no_turn_off_the_record(
    shape: list[tuple[str, str]], kept: int, lost: int
) -> None:
    switches = [turn for turn in shape if turn[0]]
    # Who says it twice, and loses the first one, is taken at the second.
    assume(all(before != after for before, after in itertools.pairwise(switches)))
    turns = [turn if turn[0] else (f"question {number}", "a") for number, turn in enumerate(shape)]
    left = [*turns[: min(kept, lost)], ("", ""), *turns[lost:], ON]
    assert set(on_record(left)) - {("", "")} <= set(on_record([*turns, ON]))


def test_where_a_switch_may_be_missing_a_turn_before_another_switch_on_is_not_taken_for_recorded() -> None:
    turns = [("on the record", "Fine."), ("a", "1"), ("on the record", "Fine."), ("b", "2")]
    assert on_record(turns) == [("a", "1"), ("b", "2")]
    assert on_record(turns, gaps=True) == [("b", "2")]
