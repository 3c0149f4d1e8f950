from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.store.queries import WORDS_MAX
from hermes_memory_pgvector.text import tokenizer

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))
SAMPLES = "ab Z 0 19 é ß İ 数据 カ 한글 สวั हि e5 db prod . - _ / : @ + # ' , \u0301 \u200d \ud800 \0 \n ﷺ ½ 😀"
PIECES = st.sampled_from(SAMPLES.split(" "))
MESSY = st.lists(PIECES, max_size=40).map("".join) | ANY_TEXT
WORDS = st.from_regex(r"[A-Za-z0-9]{1,8}", fullmatch=True)
IDENTIFIERS = st.lists(WORDS, min_size=1, max_size=6).flatmap(
    lambda words: st.lists(
        st.sampled_from(["-", "_", ".", "/", ":", "@", "::", "="]), min_size=len(words) - 1, max_size=len(words) - 1
    ).map(lambda seams: "".join(map("".join, zip(words, [*seams, ""], strict=True))))
)


def tokens(text: str) -> set[str]:
    return set(tokenizer.document(text).split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ECONNREFUSED", {"econnrefused"}),
        ("db-prod-03", {"dbprod03", "db", "prod", "03"}),
        ("user_id", {"userid", "user", "id"}),
        ("foo.bar()", {"foobar", "foo", "bar"}),
        ("10.0.3.7:5432", {"10x0x3x7x5432", "10x0x3x7", "5432", "10", "0", "3", "7"}),
        ("/etc/nginx/nginx.conf", {"etcnginxnginxconf", "nginxconf", "etc", "nginx", "conf"}),
        ("v1.2.3", {"v1x2x3", "v1", "2", "3"}),
        ("maxRetryCount", {"maxretrycount", "max", "retry", "count"}),
        ("HTTPServer", {"httpserver", "http", "server"}),
        ("anna.k@example.com", {"annakexamplecom", "annak", "examplecom", "anna", "k", "example", "com"}),
        ("1,250,000 euros", {"1250000", "euros"}),
        ("python3", {"python3", "python"}),
        ("C# and C++", {"c", "csharp", "cplusplus", "and"}),
        ("don't", {"don", "t"}),
        ("Ｗｉｄｅ", {"wide"}),
        ("ﬁle CAFÉ", {"file", "café"}),
        ("东京塔", {"东", "京", "塔", "东京", "京塔"}),
        ("ｶﾀｶﾅ", {"カ", "タ", "ナ", "カタ", "タカ", "カナ"}),
        ("3月v2", {"3", "月", "v2"}),
        ("مُحَمَّد", {"محمد"}),
        ("हिन्दी", {"हिन्दी"}),
        ("550e8400", {"x550e8400", "550", "8400"}),
    ],
)
def test_tokens_of(text: str, expected: set[str]) -> None:
    assert tokens(text) == expected


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("db-prod-03", "db_prod_03"),
        ("user_id", "userId"),
        ("gpt-4", "GPT4"),
        ("10.0.3.7:5432", "10.0.3.7"),
        ("see https://docs.example.com/a/b?x=1", "docs.example.com"),
        ("/etc/nginx/nginx.conf", "nginx.conf"),
        ("东京塔很高", "塔"),
        ("学校に行きました", "学校"),
        ("สวัสดีครับ", "ครับ"),
        ("12,500 euros", "12500"),
    ],
)
def test_what_is_written_one_way_is_found_asked_another(written: str, asked: str) -> None:
    whole_or_all = tokenizer.query(asked, WORDS_MAX)
    assert whole_or_all
    assert whole_or_all[0] in tokens(written)


def test_different_addresses_are_different_words() -> None:
    assert tokenizer.document("1.23").split()[0] != tokenizer.document("12.3").split()[0]
    assert tokenizer.document("10.0.3.7").split()[0] != tokenizer.document("10.0.37").split()[0]


def test_a_question_of_several_characters_does_not_ask_for_each() -> None:
    assert tokenizer.query("东京塔", WORDS_MAX) == ["东京", "京塔"]
    assert tokenizer.query("塔", WORDS_MAX) == ["塔"]


@given(MESSY)
def test_any_text_becomes_clean_tokens(text: str) -> None:
    for result in (tokenizer.document(text), " ".join(tokenizer.query(text, WORDS_MAX))):
        result.encode()
        assert re.fullmatch(r"(\S+( \S+)*)?", result)
        assert not set(result) & set("\0-._/:@'\"<>&")
        assert len(result.split()) == len(set(result.split()))


@given(MESSY)
def test_a_text_is_found_by_all_of_itself(text: str) -> None:
    assert set(tokenizer.query(text, 10_000)) <= tokens(text)


@given(ANY_TEXT, IDENTIFIERS, ANY_TEXT)
def test_every_identifier_of_a_document_is_found_whole(before: str, identifier: str, after: str) -> None:
    asked = set(tokenizer.query(identifier, 10_000))
    assert asked <= tokens(f"{before} {identifier} {after}")
    assert re.sub(r"[\W_]", "", identifier).lower().isascii()


def test_long_identifiers_are_found_and_told_apart() -> None:
    one, other = "a" * 5_000 + "-1", "a" * 5_000 + "-2"
    assert all(len(token.encode()) <= 2_046 for token in tokens(one))
    assert tokens(one) != tokens(other)
    assert set(tokenizer.query(one, WORDS_MAX)) <= tokens(one)


@pytest.mark.parametrize("text", ["a-" * 100_000, "\ufdfa" * 100_000, "<" * 100_000, "aB" * 100_000, "1," * 100_000])
def test_hostile_texts_are_bounded(text: str) -> None:
    assert len(tokenizer.document(text).encode()) <= tokenizer.DOCUMENT_BYTES_MAX
    assert len(tokenizer.query(text, WORDS_MAX)) <= WORDS_MAX


def test_a_document_of_many_words_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "TEXT_CHARS_MAX", 10**7)
    text = " ".join(f"word{i:x}" for i in range(100_000))
    assert len(tokenizer.document(text).encode()) <= tokenizer.DOCUMENT_BYTES_MAX


def test_a_long_question_keeps_its_beginning_and_its_end() -> None:
    asked = tokenizer.query("alpha " + " ".join(f"w{i}" for i in range(10_000)) + " omega", WORDS_MAX)
    assert len(asked) == WORDS_MAX
    assert asked[0] == "alpha"
    assert asked[-1] == "omega"
