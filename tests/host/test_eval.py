"""scripts/eval tells a memory of its own what was said, asks it, and tells what each part of a recall gives."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
SAID = {
    "session_1": [
        "Where did you spend the holidays this summer?", "We rented a hut above Grindelwald with my sister.",
        "And how is the new job?", "Quiet so far, I am learning how the tide gauges are calibrated.",
        "Did the cat travel with you?", "No, our neighbour Bruno fed her twice a day.",
    ],
    "session_2": [
        "The roof of the workshop leaks again, just above the lathe.", "Shall I come on Thursday with the ladder?",
        "Please do, and bring the sealing tape from the blue box.", "I will be there at nine, with coffee.",
    ],
}  # fmt: skip
ASKED = {
    "Who looked after the cat?": "D1:6", "What is it that leaks, and where?": "D2:1",
    "Where was the hut that they rented?": "D1:2", "When does somebody come with a ladder?": "D2:4",
}  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A conversation in LoCoMo's shape."""
    told = {
        name: [
            {"speaker": "AB"[place % 2], "dia_id": f"D{name[-1]}:{place + 1}", "text": text}
            for place, text in enumerate(texts)
        ]
        for name, texts in SAID.items()
    }
    questions = [{"question": asked, "evidence": [where], "category": 4} for asked, where in ASKED.items()]
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([{"conversation": told, "qa": questions}]))
    return path


def test_an_evaluation_measures_what_the_hooks_give_and_each_part_of_it(data: Path) -> None:
    done = subprocess.run(
        [SCRIPTS / "eval", data, "--ablation", "--json"], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    measured = results.pop("ours, bundled")
    assert measured["rows"] == sum(map(len, SAID.values()))
    assert measured["all"]["questions"] == len(ASKED)
    assert measured["all"]["recall@10"] == 1.0
    # What is computed on the stored rows is what came through the tool.
    assert results["bundled: everything"]["all"] == pytest.approx(measured["all"])
    assert len(results) > 20
    assert any(one["all"]["mrr"] < measured["all"]["mrr"] for one in results.values())
