"""Themes of one gateway: the rows, the recall and the tools of each stay its own, whatever its clients do at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hostrig.gateway import Gateway
from hostrig.hermes import Hermes
from hostrig.marks import one_server, with_and_without_row_security
from hostrig.model import Call, ModelEndpoint, Reply, Request
from hostrig.rows import Rows

pytestmark = one_server

TREES = "The apple trees behind the house are pruned every February."
DOUGH = "The bread dough on the shelf rests for nine hours."
SAVE_TREES = "Please save what we said about the apple trees"
SAVE_DOUGH = "Please save what we said about the bread dough"
SAVED_TREES = "It is saved: those trees get their cut in the second month."
SAVED_DOUGH = "It is saved: that dough gets its rest over the night."
# One grey pixel.
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ABOUT_BOTH = "Tell me what we said about the apple trees and about the bread dough"
TOLD_OF_BOTH = "I told you all that my notes of this have to say."


def save(fact: str) -> Call:
    return Call("memory", {"action": "add", "target": "memory", "content": fact})


def by_prompt(plan: Mapping[str, Sequence[Reply]]) -> Callable[[Request], Reply | None]:
    """A script for clients at once: for each prompt, the replies in order, told by what was replied since."""

    def script(request: Request) -> Reply | None:
        last = max(n for n, message in enumerate(request.messages) if message["role"] == "user")
        replied = sum(message["role"] == "assistant" for message in request.messages[last:])
        replies = plan.get(asked(request), ())
        return replies[replied] if replied < len(replies) else None

    return script


def asked(request: Request) -> str:
    return request.user.split("<memory-context>")[0].strip()


def hits(result: str) -> dict[str, str]:
    """Theme and content of what a tool found, with the other sides of turns; what is around its JSON is the host's."""
    answer = json.loads(result[result.index("{") : result.rindex("}") + 1])
    return {text["content"]: hit["theme"] for hit in answer["hits"] for text in (hit, hit.get("side", hit))}


def with_picture(text: str) -> list[dict[str, Any]]:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
    return [{"role": "user", "content": [{"type": "text", "text": text}, picture]}]


@pytest.mark.main_host("a")
def test_off_the_record_beside_a_picture_holds_and_the_agent_is_told(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    with hermes.gateway() as gateway:
        gateway.complete(with_picture("off the record"), session="private")
        gateway.ask("The doctor says that the knee needs an operation in June.", session="private")
        told = [request.user for request in model.requests if "Nothing of this session is stored" in request.user]
        assert len(told) == 1
        gateway.complete(with_picture("off the record: the code of the safe is 4711"), session="aside")
        gateway.complete(with_picture("Which bridge in Lisbon is on this photo?"), session="aside")
        rows.wait(lambda rows: any("Lisbon" in text for text in rows.said("default")))
    assert not [text for text in rows.said("default") if "knee" in text or "4711" in text]


def filed(rows: Rows, theme: str) -> list[tuple[str, str]]:
    return [(turn.role, turn.content) for turn in rows.turns(theme)]


def exchange(prompt: str, answer: str) -> list[tuple[str, str]]:
    return [("user", prompt), ("assistant", answer)]


def save_both(gateway: Gateway, model: ModelEndpoint, rows: Rows) -> None:
    """A fact in the theme `garden` and another one in the theme `kitchen`."""
    model.script = by_prompt({SAVE_TREES: [save(TREES), SAVED_TREES], SAVE_DOUGH: [save(DOUGH), SAVED_DOUGH]})
    assert gateway.ask(SAVE_TREES, key="garden") == SAVED_TREES
    assert gateway.ask(SAVE_DOUGH, key="kitchen") == SAVED_DOUGH
    rows.wait(lambda rows: len(rows.entries()) == 2 and len(rows.turns()) == 4)
    rows.wait(lambda rows: all(turn.embedded for turn in rows.turns()))


@pytest.mark.cold_start
@with_and_without_row_security
def test_rows_and_recall_stay_inside_each_theme_and_the_shared_file_is_not_copied(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    with hermes.gateway() as gateway:
        save_both(gateway, model, rows)
        model.says(TOLD_OF_BOTH, TOLD_OF_BOTH)
        for theme, own, other in (("garden", SAVED_TREES, DOUGH), ("kitchen", SAVED_DOUGH, TREES)):
            gateway.ask(ABOUT_BOTH, key=theme)
            (recalled,) = model.requests[-1].recalled
            assert own in recalled
            assert other not in recalled
        rows.wait(lambda rows: len(rows.turns()) == 8)
        assert filed(rows, "garden") == exchange(SAVE_TREES, SAVED_TREES) + exchange(ABOUT_BOTH, TOLD_OF_BOTH)
        assert filed(rows, "kitchen") == exchange(SAVE_DOUGH, SAVED_DOUGH) + exchange(ABOUT_BOTH, TOLD_OF_BOTH)
    # All themes of a home share its MEMORY.md, which no theme copies.
    assert hermes.entries("memory") == [TREES, DOUGH]
    assert (rows.entries(theme="garden"), rows.entries(theme="kitchen")) == ([TREES], [DOUGH])
    assert len(rows.entries()) == 2
    assert hermes.complaints() == []


@pytest.mark.main_host("a")
def test_themes_that_begin_with_the_same_words_are_each_filed_and_recalled_under_their_own(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    first, later = "What did we decide about the colour of the fence?", "Which colour is the fence going to be painted?"
    answers = {
        "garden": "The fence will be dark green, decided on Monday.",
        "kitchen": "The fence will be signal red, decided on Friday.",
    }
    with hermes.gateway() as gateway:
        model.says(*answers.values())
        for theme in answers:
            gateway.ask(first, key=theme)
        rows.wait(lambda rows: len(rows.turns()) == 4)
        for theme, answer in answers.items():
            assert filed(rows, theme) == exchange(first, answer)
        # Both hosts derive the session from the prompt: the two themes share its id, and on one host the provider too.
        assert len({turn.session for turn in rows.turns()}) == 1
        for theme, answer in answers.items():
            gateway.ask(later, key=theme)
            recalled = "".join(model.requests[-1].recalled)
            assert answer in recalled
            assert not any(other in recalled for other in answers.values() if other != answer)
        rows.wait(lambda rows: len(rows.turns()) == 8)
    # Neither host records for each turn which theme it was in, and host A for no session: there they are left out.
    command = ("import", "--from", "state-db", str(hermes.home / "state.db"), "--json")
    done = hermes.run(*command, program="hermes-pgvector")
    found = 4 if hermes.host == "b" else 0
    assert json.loads(done.stdout)["rows"]["turn"] == {"found": found, "new": 0}
    assert hermes.complaints() == []


@pytest.mark.main_host("b")
def test_of_two_conversations_that_begin_alike_each_is_told_of_the_other_and_not_of_itself(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    told = "The key of the greenhouse hangs behind the red door."
    asked_for = "Behind which door hangs the key of the greenhouse?"
    begin = [{"role": "user", "content": "A good day to you, gardener of this house"}]

    def goes_on(gateway: Gateway, conversation: list[dict[str, Any]], prompt: str) -> list[dict[str, Any]]:
        """Clients without a session of their own send all of the conversation each time."""
        messages = [*conversation, {"role": "user", "content": prompt}] if prompt else conversation
        (choice,) = gateway.complete(messages, key="garden")["choices"]
        rows.wait(lambda rows: ("user", messages[-1]["content"]) in filed(rows, "garden"))
        return [*messages, {"role": "assistant", "content": choice["message"]["content"]}]

    with hermes.gateway() as gateway:
        first = goes_on(gateway, goes_on(gateway, begin, ""), told)
        goes_on(gateway, first, f"Tell me, please: {asked_for}")
        assert told not in "".join(model.requests[-1].recalled)
        goes_on(gateway, goes_on(gateway, begin, ""), asked_for)
        assert told in "".join(model.requests[-1].recalled)
        assert len({turn.session for turn in rows.turns()}) == 1
    assert hermes.complaints() == []


@with_and_without_row_security
@pytest.mark.slow
def test_tools_answer_with_what_is_of_their_theme_and_name_the_others_when_asked_for_all(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, rows: Rows
) -> None:
    hermes = make_hermes(cross_theme_recall="all")

    def both(**scope: str) -> list[Call]:
        return [Call(tool, {"query": ABOUT_BOTH, **scope}) for tool in ("recall_memory", "recall_conversation")]

    with hermes.gateway() as gateway:
        save_both(gateway, model, rows)
        for theme, fact, prompt, answer in (
            ("garden", TREES, SAVE_TREES, SAVED_TREES),
            ("kitchen", DOUGH, SAVE_DOUGH, SAVED_DOUGH),
        ):
            # The same words in both themes: they share a session id.
            model.says(both(), "thanks")
            gateway.ask("Look into your memory, please, and tell me what there is", key=theme)
            memories, turns = map(hits, model.requests[-1].results)
            assert memories == {fact: theme}
            assert {prompt: theme, answer: theme}.items() <= turns.items()
            assert set(turns.values()) == {theme}
        model.says(both(scope="all"), "thanks")
        gateway.ask("And now look into all of it, whatever theme it has", key="garden")
        memories, turns = map(hits, model.requests[-1].results)
        assert memories == {TREES: "garden", DOUGH: "kitchen"}
        assert {SAVE_TREES: "garden", SAVE_DOUGH: "kitchen"}.items() <= turns.items()
        model.says(both(scope="kitchen"), "thanks")
        gateway.ask("And now look into that of the other one alone", key="garden")
        memories, turns = map(hits, model.requests[-1].results)
        assert memories == {DOUGH: "kitchen"}
        assert set(turns.values()) == {"kitchen"}
    assert hermes.complaints() == []


@with_and_without_row_security
@pytest.mark.slow
def test_the_shared_file_is_never_copied_and_a_theme_that_changes_it_changes_the_row_where_it_is(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    forget = "Please forget what the notes say of the apple trees"
    with hermes.gateway() as gateway:
        save_both(gateway, model, rows)
        for theme in ("cellar", "attic", "garden", "kitchen"):
            gateway.ask(f"Tell me something of the {theme} that I do not know yet", key=theme)
        # A host hands over a turn a moment after it has answered, and this one is killed.
        rows.wait(lambda rows: len(rows.turns()) == 4 + 8)
    with hermes.gateway() as gateway:
        for theme in ("cellar", "kitchen", "roof"):
            gateway.ask(f"Tell me something else of the {theme} that I do not know yet", key=theme)
        rows.wait(lambda rows: len(rows.turns()) == 4 + 14)
        assert (rows.entries(theme="garden"), rows.entries(theme="kitchen")) == ([TREES], [DOUGH])
        assert len(rows.entries()) == 2
        model.says(Call("memory", {"action": "remove", "target": "memory", "old_text": "apple trees"}), "It is gone.")
        gateway.ask(forget, key="kitchen")
        rows.wait(lambda rows: rows.entries() == [DOUGH])
        rows.wait(lambda rows: (filed(rows, "kitchen") or [("", "")])[-1] == ("assistant", "It is gone."))
    assert hermes.entries("memory") == [DOUGH]
    # A process outside the gateway has the theme of the home.
    hermes.ask(ABOUT_BOTH)
    assert model.requests[-1].recalled == []
    assert rows.entries(theme="kitchen") == rows.entries() == [DOUGH]
    assert hermes.complaints() == []


@pytest.mark.slow
def test_a_streamed_answer_is_kept_whole_and_gets_its_memories(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    question = "When does the boat to Rapperswil sail?"
    answer = "The boat to Rapperswil sails at nine.\n\nIt calls at every pier on its way; 東京 and 🚢 are none of them."
    with hermes.gateway() as gateway:
        model.says(answer)
        assert gateway.stream(question, key="lake").strip() == answer
        assert model.requests[-1].streamed
        rows.wait(lambda rows: len(rows.turns()) == 2)
        assert filed(rows, "lake") == exchange(question, answer)
        gateway.stream("Tell me the time of that boat to Rapperswil again", key="lake")
        assert "sails at nine" in model.requests[-1].recalled[0]
        gateway.stream("Tell me the time of that boat to Rapperswil once more", key="river")
        assert model.requests[-1].recalled == []
        rows.wait(lambda rows: len(rows.turns()) == 6)
    assert hermes.complaints() == []


@pytest.mark.slow
def test_two_clients_at_once_lose_double_and_mix_nothing(hermes: Hermes, model: ModelEndpoint, rows: Rows) -> None:
    themes, count = ("garden", "kitchen"), 8
    prompts = {theme: [f"Note number {n} about the {theme}, please keep it" for n in range(count)] for theme in themes}
    answers = {prompt: f"Done, this is the answer to: {prompt}." for theme in themes for prompt in prompts[theme]}
    facts = {prompt: f"Fact of: {prompt}" for prompt in answers}
    model.script = by_prompt({prompt: [save(facts[prompt]), answer] for prompt, answer in answers.items()})

    def client(gateway: Gateway, theme: str) -> list[str]:
        return [gateway.ask(prompt, key=theme) for prompt in prompts[theme]]

    with hermes.gateway() as gateway:
        if hermes.host == "a":
            # This host gives no provider to requests that come while the first one still loads the plugin.
            gateway.ask("Say something about the weather of tomorrow", key="weather")
        with ThreadPoolExecutor(len(themes)) as pool:
            told = list(pool.map(lambda theme: client(gateway, theme), themes))
        assert told == [[answers[prompt] for prompt in prompts[theme]] for theme in themes]
        rows.wait(lambda rows: sum(len(rows.turns(theme)) for theme in themes) >= 2 * 2 * count)
        rows.wait(lambda rows: len(rows.entries()) >= 2 * count)
    for theme in themes:
        assert filed(rows, theme) == [turn for prompt in prompts[theme] for turn in exchange(prompt, answers[prompt])]
        assert rows.entries(theme=theme) == [facts[prompt] for prompt in prompts[theme]]
        sessions: dict[str, list[Any]] = {}
        for turn in rows.turns(theme):
            sessions.setdefault(turn.session, []).append(turn.content)
        assert sorted(sessions.values()) == sorted([prompt, answers[prompt]] for prompt in prompts[theme])
        # What one client got to see is of its own theme, too.
        recalled = [request.recalled for request in model.requests if asked(request) in prompts[theme]]
        others = f"about the {next(other for other in themes if other != theme)}"
        assert others not in json.dumps(recalled)
    assert sorted(hermes.entries("memory")) == sorted(facts.values())
    assert {turn.theme for turn in rows.turns()} <= {*themes, "weather"}
    assert hermes.complaints() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "key", ["dm-telegram-0123456789abcdef", "agent:main:telegram:dm:4917055512", "AGENT:MAIN:telegram:dm:4917055512"]
)
@with_and_without_row_security
def test_a_key_that_belongs_to_a_person_opens_nothing_and_the_chat_goes_on(
    key: str, hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    with hermes.gateway() as gateway:
        model.says([Call("recall_memory", {"query": "boat", "scope": "all"})], "The boat sails at nine, as ever.")
        assert gateway.ask("When does the boat to Rapperswil sail?", key=key) == "The boat sails at nine, as ever."
        (found,) = model.requests[-1].results
        assert gateway.ask("When does the train to Rapperswil leave?", key="lake")
        rows.wait(lambda rows: len(rows.turns("lake")) == 2)
    assert "error" in json.loads(found)
    assert {turn.theme for turn in rows.turns()} == {"lake"}
    assert rows.entries() == []
    assert {agent.name for agent in rows("SELECT agent_identity AS name FROM memory_agents")} <= {"lake"}
    assert hermes.complaints() != []
    assert "4917055512" not in rows.text() + "\n".join(hermes.complaints())


@pytest.mark.main_host("a")
def test_a_terminal_that_goes_on_with_the_sessions_of_a_client_repeats_nothing_of_them(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    river, mountain, hidden = (
        f"Which {what} is the highest or the longest?" for what in ("river", "mountain", "tower")
    )
    with hermes.gateway() as gateway:
        gateway.ask(river, key="garden", session="one")
        gateway.ask("off the record", key="garden", session="two")
        gateway.stop()
    for session, question in (("one", mountain), ("two", hidden)):
        with hermes.chat("--resume", session) as chat:
            chat.ask(question)
            assert chat.leave() == 0
    said = [(turn.theme, turn.content) for turn in rows.turns() if turn.role == "user"]
    assert said == [("garden", river), ("default", mountain)]
    assert hermes.complaints() == []
