from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from loopback import Endpoint

ROOT = Path(__file__).resolve().parents[2]

TURNS = (
    "I adopted a greyhound from the shelter on Sunday, she is called Juniper.",
    "What a lovely name! Does she sleep through the night already?",
    "My sister opened a bakery near the harbour and sells rye bread.",
    "I would love to try her rye bread when I am in town next month.",
    "The marathon in Valencia was moved to December because of the storm.",
)


def talk(path: Path) -> Path:
    """A file in LoCoMo's shape with one conversation of two sessions."""
    said = [{"speaker": "AB"[n % 2], "dia_id": f"D1:{n + 1}", "text": text} for n, text in enumerate(TURNS)]
    conversation = {"session_1": said[:3], "session_2": said[3:], "session_1_date_time": "1:00 pm on 1 May, 2024"}
    questions = [
        {"question": "What is the greyhound called?", "evidence": ["D1:1"], "category": 4},
        {"question": "Who wants rye bread, and who sells it?", "evidence": ["D1:3; D1:4"], "category": 1},
        {"question": "Who flew to the moon?", "evidence": ["D1:1"], "category": 5},
    ]
    path.write_text(json.dumps([{"conversation": conversation, "qa": questions}]))
    return path


def evaluated(*arguments: object) -> dict[str, Any]:
    done = subprocess.run(
        [ROOT / "scripts" / "eval", "--json", *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def test_what_went_in_through_the_hook_is_measured_at_the_tool(tmp_path: Path, endpoint: Endpoint) -> None:
    embedder = f"{endpoint.url.removesuffix('/v1')}#words"
    (figures,) = evaluated(talk(tmp_path / "talk.json"), "--embedder", embedder).values()
    assert figures["rows"] == len(TURNS)
    assert figures["all"]["questions"] == 2
    assert figures["all"]["recall@5"] == figures["all"]["recall@20"] == 1
    assert set(figures["by category"]) == {"multi-hop", "single-hop"}
    assert figures["by category"]["single-hop"]["mrr"] == 1
    assert endpoint.texts >= len(TURNS)


def test_categories_may_be_names_and_questions_without_evidence_are_left_out(tmp_path: Path) -> None:
    path = talk(tmp_path / "talk.json")
    (told,) = json.loads(path.read_text())
    for number, turn in enumerate(told["conversation"]["session_1"]):
        turn["dia_id"] = f"M:{number}"
    told["qa"] = [
        {"question": "What is the greyhound called?", "evidence": ["M:0"], "category": "update"},
        {"question": "Who flew to the moon?", "evidence": [], "category": "abstention"},
    ]
    path.write_text(json.dumps([told]))
    (figures,) = evaluated(path, "--embedder", "none").values()
    assert set(figures["by category"]) == {"update"}
    assert figures["all"]["recall@5"] == 1


def test_recall_by_words_alone_can_be_measured(tmp_path: Path) -> None:
    (figures,) = evaluated(talk(tmp_path / "talk.json"), "--embedder", "none").values()
    assert figures["by category"]["single-hop"]["recall@5"] == 1


def test_what_each_part_gives_is_reckoned_as_the_product_does(tmp_path: Path) -> None:
    path = talk(tmp_path / "talk.json")
    (told,) = json.loads(path.read_text())
    # The answer holds no word of the question, and stands behind a turn that does.
    beside = ("Who looked after the cat when you were away?", "Bruno did, twice a day, and he watered the plants.")
    told["conversation"]["session_3"] = [
        {"speaker": "A", "dia_id": f"D3:{n + 1}", "text": text} for n, text in enumerate(beside)
    ]
    told["qa"].append({"question": "Who took care of the cat?", "evidence": ["D3:2"], "category": 4})
    path.write_text(json.dumps([told]))
    # The default model finds the answer whatever is changed.
    embedder = "bundled#multilingual-e5-small"
    results = evaluated(path, "--ablation", "--embedder", embedder)
    measured = results.pop(f"ours, {embedder}")["all"]
    # The ablation counts both sides of a turn as one hit only.
    assert measured.pop("texts@10") <= measured["recall@10"]
    assert results.pop(f"{embedder}: everything")["all"] == pytest.approx(measured)
    assert len(results) > 20
    assert any(one["all"]["mrr"] != measured["mrr"] for one in results.values())


def test_a_text_that_a_tool_shortens_is_known_by_its_row(tmp_path: Path) -> None:
    path = talk(tmp_path / "talk.json")
    (told,) = json.loads(path.read_text())
    told["conversation"]["session_2"][0]["text"] += " We walked along the river." * 2000
    told["qa"] = [{"question": "Who wants rye bread?", "evidence": ["D1:4"], "category": 4}]
    path.write_text(json.dumps([told]))
    (figures,) = evaluated(path, "--embedder", "none").values()
    assert figures["all"]["recall@5"] == 1


def test_an_endpoint_may_have_vectors_of_any_length(tmp_path: Path, endpoint: Endpoint) -> None:
    endpoint.dimensions = 100
    embedder = f"{endpoint.url.removesuffix('/v1')}#words"
    (figures,) = evaluated(talk(tmp_path / "talk.json"), "--embedder", embedder).values()
    assert figures["all"]["recall@20"] == 1
    assert endpoint.texts > len(TURNS)


def recall_sets(folder: Path) -> Path:
    """A folder of recall sets with two classes: a value that was replaced, and a question without an answer."""
    common = {"lang": "en", "now": "2026-06-01T08:00:00Z"}
    old, new = "The passphrase of the boathouse is marigold.", "The passphrase of the boathouse is now cornflower."
    rows = [
        {"id": "old", "kind": "entry", "target": "memory", "session": "s1", "at": "2026-01-05T10:00:00Z", "text": old},
        {"id": "new", "kind": "turn", "session": "s2", "at": "2026-05-05T10:00:00Z", "user": new, "assistant": "Yes."},
        {"id": "far", "kind": "entry", "target": "user", "session": "s2", "at": "2026-05-05T10:05:00Z",
         "text": "Breakfast is at seven."},
    ]  # fmt: skip
    asked = {"class": "newest", "kind": "both", "question": "What is the passphrase of the boathouse?", **common}
    newest = [
        {"id": "q1", "answers": ["new"], "older": ["old"], "half": "dev", **asked},
        {"id": "q2", "answers": ["old"], "older": ["new"], "half": "held_out", **asked},
    ]
    silent = [{"id": "q3", "answers": [], "half": "dev", **asked, "class": "no_answer", "question": "Why is it so?"}]
    folder.mkdir()
    (folder / "newest.json").write_text(json.dumps({"rows": rows, "questions": newest, "twins": []}))
    (folder / "no_answer.json").write_text(json.dumps({"rows": [], "questions": silent}))
    return folder


def test_recall_sets_are_measured_by_the_ids_of_their_rows(tmp_path: Path, endpoint: Endpoint) -> None:
    endpoint.dimensions = 64
    embedder = f"{endpoint.url.removesuffix('/v1')}#words"
    results = evaluated(recall_sets(tmp_path / "sets"), "--embedder", embedder, "--hits")
    assert results["half"] == "dev"
    assert set(results[embedder]) == {"whole", "words", "vectors"}
    for figures in results[embedder].values():
        assert figures["newest"]["questions"] == figures["all"]["questions"] == 1
        # Of two tools the notes come first, and an old one stands above the turn that replaces it.
        assert figures["newest"]["first"]["mean"] == figures["newest"]["newer above older"]["mean"] == 0
        assert figures["newest"]["in five"]["mean"] == figures["newest"]["R@10"]["mean"] == 1
        assert figures["newest"]["MRR"]["mean"] == 0.5
        assert figures["no_answer"]["first"] is None
    newest, silent = results[f"{embedder} hits"]["whole"]
    assert newest["found"][:2] == ["old", "new"]
    assert set(newest["shown"]) <= {"old", "new", "far"}
    assert silent["id"] == "q3"


def test_the_held_out_half_is_measured_when_it_is_asked_for(tmp_path: Path) -> None:
    results = evaluated(recall_sets(tmp_path / "sets"), "--embedder", "none", "--half", "held_out")
    assert results["half"] == "held_out"
    figures = results["none"]["words"]["newest"]
    assert figures["first"]["mean"] == figures["newer above older"]["mean"] == 1
