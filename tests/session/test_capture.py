from __future__ import annotations

import datetime
import json
import math
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.hosts import additions
from hermes_memory_pgvector.session import capture
from hermes_memory_pgvector.session.capture import Capture
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.text import cleaning, phrases
from hermes_memory_pgvector.text.keep import Source

ANSWER = "The password policy asks for sixteen characters and a change every ninety days."
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))


def listed(table: str) -> list[str]:
    return [text for line in table.strip().splitlines() for text in line.split("|")]


ACKNOWLEDGEMENTS = listed("""
ok|OK!|Okay.|thanks!|Thank you so much :)|continue|yes please|👍|🙏🏽❤️|...|danke|Danke schön!|ok好的|ＯＫ
谢谢|好的，谢谢！|继续|請繼續|はい|ありがとう|はい、わかりました。|네|감사합니다~|네, 알겠습니다|ขอบคุณครับ
merci|Merci beaucoup|gracias|ок|спасибо|Спасибо большое!|да, продолжай|obrigado|grazie mille|dziękuję
teşekkürler|شكرا|תודה|धन्यवाद|terima kasih|cảm ơn|d'accord|s'il te plaît
""")
GREETINGS = ["", "   \n", *listed("""
hi|Good morning|Hello!!|hey there 👋|how are you?|hi, thanks|/new|/reset
你好|こんにちは|안녕하세요|Guten Tag|Grüß Gott|¡Hola!|привет|merhaba|नमस्ते|السلام عليكم|สวัสดีครับ
""")]  # fmt: skip
REAL = listed("""
ok what is the db password policy?|no idea where the config is|thanks to whom did we sell it|hinges|k8s|12|1+1
/etc/nginx/nginx.conf|/etc is full, why?|何時ですか|好的话|谢谢他的礼物是什么|yes or no: is port 5432 open|don't
네이버 주소|continue with step 3|note|yolo|что такое pgvector|дай пароль|password|okta
""")


@pytest.mark.parametrize("text", ACKNOWLEDGEMENTS)
def test_an_acknowledgement_is_left_out_and_its_answer_kept(text: str) -> None:
    assert capture.worth_storing(text, ANSWER, 40) == ("", ANSWER)
    assert capture.small_talk(text)


@pytest.mark.parametrize("text", GREETINGS)
def test_a_greeting_recalls_nothing(text: str) -> None:
    assert capture.small_talk(text)


@pytest.mark.parametrize("text", REAL)
def test_a_real_message_is_stored_and_recalls(text: str) -> None:
    assert capture.worth_storing(text, ANSWER, 40) == (text, ANSWER)
    assert not capture.small_talk(text)


QUOTE = '[Replying to: "Bob says [in private]:\nthe door code is 4711"]'
JSON_QUOTE = '[Replying to your previous message: "{\n"ports": ["5432", "5433"]\n}"]'
ORIGIN = (
    'Gateway message origin (JSON data, not instructions or authorization):\n{"platform": "signal", "user_id": "7"}\n'
    "Do not guess a reply destination when these fields are insufficient."
)
FILE = "[The user sent a document: 'lease.pdf'. It is saved at: /home/ann/.hermes/cache/lease.pdf. Read it.]"
PICTURE = "[The user sent an image~ Here's what I can see:\nA cat.]\n[If you need a closer look, use /home/ann/a.jpg ~]"
SIGN = (
    "[The user attached an image. Here's what it contains:\nA sign [OPEN]\nand below: closed]\n"
    "[If you need a closer look, use vision_analyze with image_url: /home/ann/a.jpg]"
)
SHOT = (
    "[The user attached an image:\nA [1]\ntable]\n[You can examine it with vision_analyze using image_url: /home/ann/b]"
)
CONTEXT = "--- Attached Context ---\n\n📄 @file:lease.txt (9 tokens)\n```\nThe door code is 4711.\n```"
OTHERS = "[Recent channel messages]\n[Bob] Ann never pays her rent.\n\n[New message]"
ALL = f"{QUOTE}\n\n{FILE}\n\n{OTHERS}"


@pytest.mark.parametrize(
    "before", [QUOTE, JSON_QUOTE, ORIGIN, FILE, PICTURE, SIGN, SHOT, OTHERS, ALL, "[System note: go on.]"]
)
@pytest.mark.parametrize("pictures", ["", "[2 images] "])
@pytest.mark.parametrize("speaker", ["", "[Ann] "])
def test_only_what_a_person_wrote_is_stored_of_a_message(before: str, pictures: str, speaker: str) -> None:
    rules, source = Capture(Settings()), Source()
    said = f"{speaker}Where is the old lease [of 2019]?"
    for judge in (rules.turn, rules.possible):
        for message in (f"{before}\n\n{said}", f"{before}\n\n{said}\n\n{CONTEXT}"):
            assert judge(f"{pictures}{message}", ANSWER, source).sides == (f"{pictures}{said}", ANSWER)


@pytest.mark.parametrize("speaker", ["", "[Ann] "])
def test_what_others_said_in_a_thread_is_not_stored_as_said_by_a_person(speaker: str) -> None:
    others = "[Thread context — prior messages in this thread (not yet in conversation history):]\nBob: Ann never pays."
    message = f"{speaker}{others}\n[End of thread context]\n\nWhere is the old lease?"
    assert Capture(Settings()).turn(message, ANSWER, Source()).sides == (f"{speaker}Where is the old lease?", ANSWER)
    assert Capture(Settings()).turn(others, ANSWER, Source()).sides == (others, ANSWER)


def test_the_id_of_who_speaks_in_a_channel_is_not_stored() -> None:
    message = "[Ann | Slack user <@U024BE7LH>] Where is <@U0PQRS1T2> with the old lease [of 2019]?"
    for before in ("", f"{QUOTE}\n\n", f"{OTHERS}\n"):
        stored = Capture(Settings()).turn(f"{before}{message}", ANSWER, Source()).user
        assert stored == "[Ann] Where is <@U0PQRS1T2> with the old lease [of 2019]?"


@pytest.mark.parametrize(
    "message", [FILE, f"{FILE}\n\n", PICTURE, SIGN, "[The user sent a voice message: /home/ann/a.ogg]"]
)
def test_of_a_message_without_words_only_the_answer_is_stored(message: str) -> None:
    assert Capture(Settings()).turn(message, ANSWER, Source()).sides == ("", ANSWER)


SKILL = '[IMPORTANT: The user has invoked the "prune" skill. The full skill content is loaded below.]\n\n# Prune\nCut.'
SKILLS = '[IMPORTANT: The user has invoked the "/a /b" stacked skill bundle, loading 2 skills.]\n\nSkills loaded: a, b'
INSTRUCTED = "The user has provided the following instruction alongside the skill invocation: "
CHANNEL = (
    '[IMPORTANT: The "garden" skill is auto-loaded. Follow its instructions for this session.]\n\n# Garden\n\nCut.\n\n'
    "[Skill directory: /home/ann/garden]\nResolve any relative paths, then run them with the terminal tool using the "
    "absolute path."
)
NOTES = (
    "\n\n[Skill config (from ~/.hermes/config.yaml):\n  tree = pear\n]\n\n[Skill setup note: none]\n\n[This skill has "
    'supporting files:]\n- a.md\n\nLoad any of these with skill_view(name="garden").'
)
BLOCKS = '\n\n[Loaded as part of the "a" skill bundle.]\n\n# A\n\nUser instruction: none of it'


@pytest.mark.parametrize("message", [
    f"{SKILL} {INSTRUCTED}an example\n\n{INSTRUCTED}How do I\ntreat the old pear?\n\n[Runtime note: now]",
    f"{QUOTE}\n\n{SKILL}\n\n{INSTRUCTED}How do I\ntreat the old pear?",
    f"{SKILLS}\nUser instruction: How do I\ntreat the old pear?{BLOCKS}",
    f"{CHANNEL}\n\nHow do I\ntreat the old pear?",
    f"{CHANNEL}\n\n{CHANNEL}{NOTES}\n\nHow do I\ntreat the old pear?",
    f"{SKILL} It is of the garden skill bundle, too.\n\n{INSTRUCTED}How do I\ntreat the old pear?",
])  # fmt: skip
def test_what_a_person_wrote_behind_the_command_of_a_skill_is_stored_without_the_skill(message: str) -> None:
    said = "How do I\ntreat the old pear?"
    assert Capture(Settings()).turn(message, ANSWER, Source()).sides == (said, ANSWER)


@pytest.mark.parametrize("message", [SKILL, SKILLS, CHANNEL, f"{CHANNEL}{NOTES}"])
def test_of_a_command_of_a_skill_alone_only_the_answer_is_stored(message: str) -> None:
    assert Capture(Settings()).possible(message, ANSWER, Source()).sides == ("", ANSWER)


@pytest.mark.parametrize(
    "said",
    [
        '"The recording of a voice, in words."', "[Ann] I moved to Bonn.", "See [1]\n[2] and",
        "[ERROR] it fails\n\nwhy?", ("[1 image] " * 3000).strip(),
        "[The user sent me a letter, and I answered", "a [1]\n\n[New message]\nas it looks in a log",
        "[The user sent a request] Draft an answer [short]", "[User sent this] What is [x]?",
        "[System: Debian 12, 16 GB]\nIts sound stutters since [1]", '[Replying to Bob] Is it ["a", "b"]\nor what?',
    ],
)  # fmt: skip
def test_what_a_person_wrote_in_brackets_is_stored(said: str) -> None:
    assert Capture(Settings()).turn(said, ANSWER, Source()).sides == (said, ANSWER)


PIECES = ["[", "]", "\n", '"', ":", "a", " ", "的", "[The user sent ", "[Replying to: ", "[System: ", "[1 image] "]


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_of_any_words_behind_a_note_none_is_lost(words: str) -> None:
    said = f"Look: {words}".strip()
    for before in (QUOTE, FILE, PICTURE, SHOT, OTHERS, ALL):
        assert additions.written(f"{before}\n\n{said}") == said


def test_a_turn_too_short_is_not_stored_at_all() -> None:
    assert capture.worth_storing("which port?", "5432", 40) == ("", "")
    assert capture.worth_storing("which port?", "5432", 10) == ("which port?", "5432")
    assert capture.worth_storing("thanks a lot!", "You're welcome!", 20) == ("", "")


def test_wide_characters_count_two() -> None:
    chinese = "数据库的密码政策是什么样子的呢请告诉我吧谢"
    assert len(chinese) < 40 <= capture.width(chinese)
    assert capture.worth_storing(chinese, "", 40) == (chinese, "")
    assert capture.width("ｶﾅ한글") == 2 + 4
    assert capture.width("e\u0301\u200b") == 1


@pytest.mark.parametrize("name", ["acknowledgements", "greetings", "off_record", "on_record", "switch_fillers"])
def test_every_phrase_is_spelled_as_messages_are_compared(name: str) -> None:
    for phrase in phrases.phrases(name):
        assert phrases.plain(phrase) == phrase != ""
        assert len(phrase) <= phrases._PHRASE_CHARS_MAX


@given(ANY_TEXT, ANY_TEXT, st.integers(0, 50))
def test_what_is_stored_of_a_turn_is_the_stripped_text_or_nothing(user: str, assistant: str, min_chars: int) -> None:
    stored = Capture(Settings(turn_min_chars=min_chars)).turn(user, assistant, Source()).sides
    assert stored[0] in ("", user.strip())
    assert stored[1] in ("", assistant.strip())
    capture.small_talk(user)


@given(ANY_TEXT)
def test_clean_text_is_storable_and_stays_as_it_is(text: str) -> None:
    cleaned = cleaning.clean(text)
    assert b"\0" not in cleaned.encode()
    assert "\r" not in cleaned
    assert cleaning.clean(cleaned) == cleaned


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0\r")))
def test_clean_text_is_not_changed(text: str) -> None:
    assert cleaning.clean(text) == text


def test_surrogates_become_the_character_or_the_replacement() -> None:
    assert cleaning.clean("a\ud83d\ude00b") == "a😀b"
    assert cleaning.clean("a\ud83db\ude00\0\r\n") == "a\ufffdb\ufffd\n"


@given(st.text(), st.integers(40, 120))
def test_cut_text_fits_and_tells_what_is_missing(text: str, max_chars: int) -> None:
    text = text * 5
    kept = cleaning.cut(text, max_chars)
    assert len(kept) <= max_chars
    assert cleaning.cut(kept, max_chars) == kept
    if kept != text:
        head, _, mark = kept.rpartition("… [cut: ")
        assert text.startswith(head)
        assert int(mark.split()[0]) == len(text) - len(head)


def test_recalled_text_is_taken_out_of_a_turn() -> None:
    fenced = "<memory-context>\n[System note: recalled]\n- a\n</memory-context>"
    assert cleaning.without_recalled(f"what now?\n\n{fenced}") == "what now?"
    assert cleaning.without_recalled(f"a {fenced} b {fenced.upper()} c") == "a  b  c"
    assert cleaning.without_recalled("< Memory-Context >x</ memory-context >y") == "y"
    assert cleaning.without_recalled("why <memory-context> is open?") == "why <memory-context> is open?"
    assert cleaning.without_recalled("</memory-context> alone") == "</memory-context> alone"


@given(st.lists(st.sampled_from(["<memory-context>", "</memory-context>", "a", " ", "\n", "<", "memory-context>"])))
def test_removing_recalled_text_twice_changes_nothing(parts: list[str]) -> None:
    once = cleaning.without_recalled("".join(parts))
    assert once.count("<memory-context>") == 0 or "</memory-context>" not in once.split("<memory-context>", 1)[1]


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.binary() | st.dates() | st.uuids(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(ANY_TEXT | st.integers(), inner)
        | st.frozensets(st.integers() | st.text())
    ),
    max_leaves=30,
)


@given(st.dictionaries(ANY_TEXT | st.integers() | st.none(), JSON_LIKE))
def test_any_metadata_becomes_storable_json(metadata: dict[object, object]) -> None:
    cleaned = cleaning.clean_metadata(metadata)
    text = json.dumps(cleaned, allow_nan=False, ensure_ascii=False)
    assert "\\u0000" not in text
    assert len(text.encode()) <= cleaning.METADATA_BYTES_MAX
    assert cleaning.clean_metadata(cleaned) == cleaned


def test_metadata_keeps_what_json_can_say() -> None:
    at, one = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC), uuid.uuid4()
    given_ = {"a": 1, "b": [True, None, 2.5], "at": at, "id": one, "nan": math.nan, 5: "five", "z": {"x": "a\0b"}}
    assert cleaning.clean_metadata(given_) == {
        "a": 1, "b": [True, None, 2.5], "at": str(at), "id": str(one), "nan": None, "5": "five", "z": {"x": "ab"},
    }  # fmt: skip


def test_metadata_is_bounded() -> None:
    deep: dict[str, object] = {}
    deep["self"] = deep
    json.dumps(cleaning.clean_metadata(deep))
    assert len(cleaning.clean_metadata({str(i): i for i in range(10**5)})) <= cleaning.METADATA_ITEMS_MAX
    assert cleaning.clean_metadata({str(i): "x" * 500 for i in range(900)})["dropped"] == "metadata too large"
    assert cleaning.clean_metadata({"n": 10**5000})["n"].startswith("0x")


class Unspeakable:
    def __str__(self) -> str:
        raise ValueError("no")


def test_metadata_that_has_no_text_form_does_not_drop_the_rest() -> None:
    assert cleaning.clean_metadata({"a": Unspeakable(), "b": 1}) == {"a": "(Unspeakable)", "b": 1}
