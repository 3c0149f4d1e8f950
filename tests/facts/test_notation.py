from __future__ import annotations

import re

import pytest
from hostile import ANY_TEXT
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_memory_pgvector.errors import BadArgument
from hermes_memory_pgvector.facts import notation
from hermes_memory_pgvector.facts.notation import SYMBOLS, Notation, parse
from hermes_memory_pgvector.model import FACT_KINDS

CHARS_MAX = 400
PIECES = st.sampled_from(
    [*SYMBOLS.values(), *"[]［］【】（:： \n\0\u200b\ud800", "db.id", "认证", "x" * 90, "Ｃ", "decision"]
)
NEARLY = st.lists(PIECES, max_size=12).map("".join) | ANY_TEXT


@pytest.mark.parametrize(
    ("text", "kind", "target", "content"),
    [
        ("C[db.id]: UUID, never autoincrement", "C", "db.id", "UUID, never autoincrement"),
        ("D[auth]:JWT 7d", "D", "auth", "JWT 7d"),
        ("  V[srv.prod]: api.example.com:3005\n", "V", "srv.prod", "api.example.com:3005"),
        ("?[cache]: how long?", "?", "cache", "how long?"),
        ("✓[auth]: deployed", "done", "auth", "deployed"),
        ("✅[auth]: deployed", "done", "auth", "deployed"),
        ("✔️[auth]: deployed", "done", "auth", "deployed"),
        ("~[auth]: sessions", "obs", "auth", "sessions"),
        ("Ｄ［认证］：JWT 有效期 7 天", "D", "认证", "JWT 有效期 7 天"),
        ("V【サーバー】：10.0.3.7", "V", "サーバー", "10.0.3.7"),
        ("？［배포］：언제？", "?", "배포", "언제？"),
        ("～［旧 API］：廃止", "obs", "旧 API", "廃止"),
        ("C [ db  id ] : UUID", "C", "db id", "UUID"),
        ("V[ＡＰＩ\u200b]: [x]: y", "V", "API", "[x]: y"),
    ],
)
def test_a_fact_is_read_as_people_type_it(text: str, kind: str, target: str, content: str) -> None:
    assert parse(text, CHARS_MAX) == Notation(kind, target, content)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("we use JWT", "V[target]: we use JWT"),
        ("C[db.id] UUID", "C[db.id]: UUID"),
        ("C(db.id): UUID", "C[db.id]: UUID"),
        ("c[db.id]: UUID", "C[db.id]: UUID"),
        ("decision [auth] - JWT", "D[auth]: JWT"),
        ("Decision: JWT 7 days", "D[target]: JWT 7 days"),
        ("[db.id]: UUID", "V[db.id]: UUID"),
        ("X[db.id]: UUID", "V[db.id]: UUID"),
        ("srv.prod: 10.0.3.7", "V[srv.prod]: 10.0.3.7"),
        ("port = 3005", "V[port]: 3005"),
        ("C[]: UUID", "C[target]: UUID"),
        ("C[db.id]:  ", "C[db.id]: what holds"),
        ("D[认证] JWT", "D[认证]: JWT"),
        ("C[db.id]: UUID\nnever autoincrement", "write it as one line: C[db.id]: UUID never autoincrement"),
        ("C[a]: x\nD[b]: y", "write each fact with a call of its own, for example: C[a]: x"),
        ("V[a]: \u200b", "V[a]: what holds"),
        ("<|im_start|>system", "V[target]: (im_start)system"),
    ],
)
def test_what_is_no_fact_is_answered_with_the_right_form_of_it(text: str, shown: str) -> None:
    with pytest.raises(BadArgument) as refused:
        parse(text, CHARS_MAX)
    assert str(refused.value).endswith(f": {shown}" if not shown.startswith("write") else shown)


def test_a_suggestion_is_a_fact_itself() -> None:
    for text in ("we use JWT", "C(db.id) UUID", "Decision: JWT", "X[a]: b", "C[]:", "🙂(x)"):
        assert isinstance(parse(notation.suggested(text), CHARS_MAX), Notation)


def test_nothing_is_cut() -> None:
    assert parse("V[a]: " + "x" * CHARS_MAX, CHARS_MAX).content == "x" * CHARS_MAX
    with pytest.raises(BadArgument, match=r"about 'a' has 401 characters; it may have 400"):
        parse("V[a]: " + "x" * (CHARS_MAX + 1), CHARS_MAX)
    with pytest.raises(BadArgument, match="has 201 characters; it may have 200"):
        parse(f"V[{'t' * 201}]: x", CHARS_MAX)


@pytest.mark.parametrize(
    "text", ["", " \n", "\0", "\ud800" * 3, "x" * 1_000_000, "[" * 1_000_000, "C[a]: \n" * 100_000]
)
def test_bad_input_gets_a_short_answer(text: str) -> None:
    with pytest.raises(BadArgument) as refused:
        parse(text, CHARS_MAX)
    assert len(str(refused.value)) < 500
    str(refused.value).encode()


@example("C[﹇]: x")
@given(NEARLY)
def test_a_text_is_refused_or_has_one_form_that_stays(text: str) -> None:
    try:
        found = parse(text, CHARS_MAX)
    except BadArgument as error:
        assert len(str(error)) < 500  # noqa: PT017
        return
    assert parse(str(found), CHARS_MAX) == found
    assert "\n" not in str(found)
    assert re.match(r"[CDV?✓~]\[[^\[\]]+\]: \S", str(found))
    str(found).encode()


@given(
    st.sampled_from(FACT_KINDS),
    st.from_regex(r"[\w.-]{1,30}", fullmatch=True),
    st.from_regex(r"\w[\w :\[\]]*\w", fullmatch=True),
)
def test_what_is_formatted_is_read_back(kind: str, target: str, content: str) -> None:
    text = f"{SYMBOLS[kind]}[{target}]: {content}"  # type: ignore[index]
    assert parse(text, 10_000).kind == kind


@pytest.mark.parametrize("between", ["\u200b", " "])
def test_nothing_of_a_long_target_is_left_out(between: str) -> None:
    with pytest.raises(BadArgument, match="target of content has 4004 characters; it may have 200"):
        parse(f"V[a{between * 4000}end]: 1", CHARS_MAX)


def test_a_scope_is_bounded_and_has_one_form() -> None:
    assert notation.scope_label("  auth \u200b refactor ") == "auth refactor"
    assert notation.scope_label("") == notation.scope_label(" ") == ""
    with pytest.raises(BadArgument, match="nothing to see"):
        notation.scope_label("\u200b")
    with pytest.raises(BadArgument, match="may have 100"):
        notation.scope_label("x" * 1_000_000)
