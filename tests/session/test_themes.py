from __future__ import annotations

import itertools
import unicodedata
from typing import Literal, TypeAlias

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hermes_memory_pgvector.errors import BadArgument, SettingsError
from hermes_memory_pgvector.session import scopes, themes
from hermes_memory_pgvector.session.identity import Identity
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.text import theme_names

Rule: TypeAlias = Literal["all", "none"] | dict[str, list[str]]

KEY = b"a key of the operator"
PERSON = "dm-telegram-0123456789abcdef"
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))
IDS = st.from_regex(r"[A-Za-z0-9+@!.$_-]{5,20}", fullmatch=True)
PLATFORMS = st.sampled_from(["telegram", "whatsapp", "discord", "signal", "google_chat", "irc"])


def session_theme(key: str, **more: str) -> str:
    identity = Identity(gateway_session_key=key, agent_identity="default", **more)
    return themes.theme_of(identity, aliases={}, person_key=KEY)


def theme_of(identity: Identity, session_key: str | None = None) -> str:
    return themes.theme_of(identity, session_key, aliases={}, person_key=KEY)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Billing", "billing"),
        ("  Team  Red\t", "team-red"),
        ("ＢＩＬＬＩＮＧ", "billing"),
        ("bil\u200bling\0", "billing"),
        ("", "default"),
        (" \u200b", "default"),
        ("Straße", "strasse"),
        ("团队", "团队"),
    ],
)
def test_normalised_names(name: str, expected: str) -> None:
    assert theme_names.normalise(name) == expected


@given(ANY_TEXT | st.text(min_size=120, max_size=300))
def test_normalising_is_idempotent_and_bounded(name: str) -> None:
    theme = theme_names.normalise(name)
    assert theme_names.normalise(theme) == theme
    assert 1 <= len(theme) <= theme_names.THEME_CHARS_MAX
    assert not any(c.isspace() or unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in theme)
    theme.encode()


def test_long_names_stay_apart() -> None:
    assert theme_names.normalise("x" * 200) != theme_names.normalise("x" * 201)


def test_the_header_comes_first_then_profile_then_workspace_then_default() -> None:
    everything = {"gateway_session_key": "Header", "agent_identity": "Profile", "agent_workspace": "Space"}
    for left_out, expected in (
        ([], "header"),
        (["gateway_session_key"], "profile"),
        (["gateway_session_key", "agent_identity"], "space"),
        (list(everything), "default"),
    ):
        told = {name: value for name, value in everything.items() if name not in left_out}
        assert theme_of(Identity.of(told)) == expected
    assert theme_of(Identity(agent_identity="default", agent_workspace="hermes")) == "default"


def test_the_running_request_decides_but_only_where_a_gateway_is() -> None:
    assert theme_of(Identity(gateway_session_key="a"), "B") == "b"
    assert theme_of(Identity(gateway_session_key="a"), "") == "a"
    assert theme_of(Identity(agent_identity="profile"), "from-the-environment") == "profile"


def test_identity_ignores_what_it_does_not_know() -> None:
    identity = Identity.of({"session_id": "s", "chat_id": 12345, "user_id": None, "platform": "telegram"})
    assert identity == Identity(chat_id="12345", platform="telegram")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # A thread does not split a person.
        ("agent:main:telegram:dm:12345", "agent:main:telegram:dm:12345:678"),
        ("agent:main:matrix:dm:!room:example.org", "agent:main:matrix:dm:!room:example.org:$event"),
        ("agent:main:slack:dm:T0123ABCD:D0456EFGH", "agent:main:slack:dm:T0123ABCD:D0456EFGH:1700000000.1"),
        # A group drops the participant and the thread, whatever the type of chat is called.
        ("agent:main:discord:group:999:alice", "agent:main:discord:group:999:bob"),
        ("agent:main:discord:channel:999:alice", "agent:main:discord:thread:999:777"),
        ("agent:main:signal:group:group:abc=:alice", "agent:main:signal:group:group:abc=:bob"),
        ("agent:main:slack:channel:T0123ABCD:C0456EFGH:U1", "agent:main:slack:channel:T0123ABCD:C0456EFGH:U2"),
    ],
)
def test_one_theme_for_one_person_or_room(first: str, second: str) -> None:
    assert session_theme(first) == session_theme(second)


def test_persons_rooms_platforms_profiles_and_workspaces_stay_apart() -> None:
    keys = [
        "agent:main:telegram:dm",
        "agent:main:telegram:dm:1",
        "agent:main:telegram:dm:12",
        "agent:main:telegram:group:1",
        "agent:main:discord:dm:1",
        "agent:coder:telegram:dm:1",
        "agent:main:matrix:dm:!room:one.org",
        "agent:main:matrix:dm:!room:two.org",
        "agent:main:signal:group:group:abc=",
        "agent:main:signal:group:group:def=",
        "agent:main:teams:dm:29:abc",
        "agent:main:teams:dm:29:def",
        "agent:main:slack:dm:T0123ABCD:D0456EFGH",
        "agent:main:slack:dm:T9999ABCD:D0456EFGH",
        "agent:main:slack:dm:D0456EFGH",
    ]
    assert len({session_theme(key) for key in keys}) == len(keys)


def test_the_chat_id_of_the_host_decides_where_the_id_in_the_key_ends() -> None:
    key = "agent:main:odd:dm:a:b:c"
    assert session_theme(f"{key}:thread", chat_id="a:b:c") == session_theme(key, chat_id="a:b:c")
    assert session_theme(key, chat_id="a:b:c") != session_theme("agent:main:odd:dm:a:b:d", chat_id="a:b:d")


def test_a_private_chat_without_an_id_is_identified_by_its_sender() -> None:
    key = "agent:main:odd:dm"
    assert session_theme(key, user_id="alice") != session_theme(key, user_id="bob")


def test_a_profile_has_one_theme_for_a_person_however_it_is_served() -> None:
    alone = Identity(gateway_session_key="agent:main:telegram:dm:1", agent_identity="coder")
    assert theme_of(alone) == session_theme("agent:coder:telegram:dm:1")


@given(PLATFORMS, st.sampled_from(["dm", "group", "channel"]), IDS, IDS, IDS)
def test_a_messaging_theme_is_reserved_and_holds_no_id(
    platform: str, kind: str, chat: str, thread: str, user: str
) -> None:
    theme = session_theme(f"agent:main:{platform}:{kind}:{chat}:{thread}:{user}", platform=platform, user_id=user)
    assert theme_names.reserved(theme)
    assert theme_names.normalise(theme) == theme
    assert theme.startswith(f"{'dm' if kind == 'dm' else 'group'}-{platform}-")
    digest = theme.rsplit("-", 1)[1]
    assert not any(part.lower() in digest for part in (chat, thread, user))


@given(PLATFORMS, IDS, IDS)
def test_two_persons_never_share_a_theme(platform: str, one: str, other: str) -> None:
    assume(one != other)
    assert session_theme(f"agent:main:{platform}:dm:{one}") != session_theme(f"agent:main:{platform}:dm:{other}")


def test_the_theme_of_a_person_depends_on_the_key() -> None:
    identity = Identity(gateway_session_key="agent:main:telegram:dm:1")
    assert len({themes.theme_of(identity, aliases={}, person_key=key) for key in (b"a", b"b")}) == 2
    with pytest.raises(SettingsError, match="HERMES_PGVECTOR_PERSON_KEY"):
        themes.theme_of(identity, aliases={}, person_key=b"")


@pytest.mark.parametrize(
    "header", ["dm-telegram-0123456789abcdef", " DM-Slack-0123456789ABCDEF ", "group-x-" + "a" * 16]
)
def test_a_header_cannot_name_a_reserved_theme(header: str) -> None:
    with pytest.raises(BadArgument, match="reserved"):
        theme_of(Identity(gateway_session_key=header, platform="api_server"))
    with pytest.raises(BadArgument, match="reserved"):
        theme_of(Identity(agent_identity=header))


@pytest.mark.parametrize(
    "header",
    [
        "agent:main:telegram:dm:12345",
        "agent:coder:x:group",
        "agent:a:b:channel:c:d",
        "AGENT:Main:telegram:DM:12345",
        "ａｇｅｎｔ:main:telegram:dm:12345",
    ],
)
def test_a_header_cannot_pass_for_a_messaging_session(header: str) -> None:
    with pytest.raises(BadArgument, match="messaging session") as refusal:
        theme_of(Identity(gateway_session_key=header, platform="api_server"))
    assert "12345" not in str(refusal.value)


def test_a_header_of_another_form_is_a_theme_like_any_other() -> None:
    for header in ("Agent:main", "agent:main", "agent:one:two:three"):
        assert theme_of(Identity(gateway_session_key=header, platform="api_server")) == header.lower()


def test_names_that_only_resemble_reserved_ones_are_free() -> None:
    for name in ("dm-telegram", "group-therapy", "dm-telegram-0123456789abcde", "group-x-0123456789abcdeg", "admin"):
        assert not theme_names.reserved(name)
        assert theme_of(Identity(gateway_session_key=name, platform="api_server")) == name


def test_aliases_take_one_step() -> None:
    aliases = {"Bills": "Billing", "billing": "bills", "me": "ME"}
    assert themes.aliased("bills", aliases) == "billing"
    assert themes.aliased("billing", aliases) == "bills"
    assert themes.aliased("me", aliases) == "me"
    assert themes.aliased("other", aliases) == "other"


@given(st.dictionaries(ANY_TEXT, ANY_TEXT | st.just(PERSON)), ANY_TEXT)
def test_an_alias_never_leads_to_a_reserved_theme(aliases: dict[str, str], name: str) -> None:
    theme = themes.aliased(theme_names.normalise(name), aliases)
    assert not theme_names.reserved(theme)
    assert theme_names.normalise(theme) == theme


def test_the_allow_list() -> None:
    assert themes.allowed("anything", [])
    assert themes.allowed("billing", ["Billing "])
    assert not themes.allowed("biling", ["billing"])
    assert themes.allowed(PERSON, ["billing"])


@pytest.mark.parametrize(
    ("scope", "rule", "allowed", "expected"),
    [
        ("current", "all", [], ("own",)),
        ("session", "none", [], ("own",)),
        ("all", "all", [], None),
        ("all", "none", [], ("own",)),
        ("all", "all", ["own", "red", PERSON], ("own", "red")),
        ("all", {"OWN": ["red", "own", PERSON]}, [], ("own", "red")),
        ("all", {"own": ["red", "blue"]}, ["own", "blue"], ("own", "blue")),
        ("all", {"red": ["own"]}, [], ("own",)),
        ("Red", "all", [], ("red",)),
        ("rouge", "all", [], ("red",)),
        ("red", {"own": ["red"]}, [], ("red",)),
        ("own", "none", [], ("own",)),
        ("all", {"Mine": ["rouge", "red"]}, [], ("own", "red")),
        ("rouge", {"own": ["Rouge"]}, [], ("red",)),
        ("all", "all", ["mine", "rouge"], ("own", "red")),
    ],
)
def test_what_may_be_read(scope: str, rule: Rule, allowed: list[str], expected: object) -> None:
    settings = Settings(cross_theme_recall=rule, allowed_themes=allowed, theme_aliases={"rouge": "red", "mine": "own"})
    assert scopes.readable("own", scope, settings) == expected


@pytest.mark.parametrize(
    ("scope", "rule", "allowed"),
    [("red", "none", []), ("red", {"own": ["blue"]}, []), ("red", "all", ["own", "blue"]), (PERSON, "all", [])],
)
def test_what_may_not_be_read(scope: str, rule: Rule, allowed: list[str]) -> None:
    with pytest.raises(BadArgument, match="scope"):
        scopes.readable("own", scope, Settings(cross_theme_recall=rule, allowed_themes=allowed))


def test_the_theme_of_a_person_is_read_by_that_theme_only() -> None:
    assert scopes.readable(PERSON, PERSON, Settings(cross_theme_recall="none")) == (PERSON,)
    other = "dm-telegram-fedcba9876543210"
    rules: tuple[Rule, ...] = ("all", "none", {"own": [PERSON], other: [PERSON]})
    for reader, rule in itertools.product(("own", other), rules):
        settings = Settings(cross_theme_recall=rule)
        with pytest.raises(BadArgument):
            scopes.readable(reader, PERSON, settings)
        everything = scopes.readable(reader, "all", settings)
        assert everything is None or PERSON not in everything


def test_a_chat_of_an_unknown_type_is_private() -> None:
    identity = Identity(gateway_session_key="agent:main:sms:text:+4917012345", platform="sms")
    theme = themes.theme_of(identity, aliases={}, person_key=b"k" * 32)
    assert theme_names.reserved(theme)
    assert "4917012345" not in theme
