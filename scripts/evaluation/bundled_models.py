"""What each bundled model finds by its vectors alone, and what it costs: `scripts/eval --models`."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .cases import Case

ENGLISH = (
    "The export stopped after two thousand lines, and the log only says that the other side closed the connection. "
    "The proxy was suspected first, because its time limit had been lowered in spring, but that limit is ten minutes. "
)
GERMAN = (
    "Die Ausfuhr brach nach zweitausend Zeilen ab, und im Protokoll steht nur, dass die Gegenseite getrennt hat. "
    "Zuerst fiel der Verdacht auf den Vermittler, weil seine Frist verkürzt worden war, aber die beträgt zehn Minuten. "
)
LENGTHS = (100, 400, 1000, 2000)


def table(cases: Sequence[Case]) -> dict[str, dict[str, Any]]:
    """The figures of each model, measured in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    found = {}
    for name in ("minilm-e5", "multilingual-e5-small", "all-MiniLM-L6-v2"):
        with spawn.Pool(1) as pool:
            found[name] = pool.apply(figures, [name, cases])
    return found


def figures(name: str, cases: Sequence[Case]) -> dict[str, Any]:
    """First and in five by category, CPU in ms by length, and MiB of memory before and after the use of the model."""
    before = _rss_mb()
    model = _model(name)
    costs = {f"{length} characters, ms": _cpu_ms(model, (ENGLISH * 20)[:length]) for length in LENGTHS}
    english = _rss_mb()
    costs["1000 characters of German, ms"] = _cpu_ms(model, (GERMAN * 20)[:1000])
    memory = {"MiB before": before, "MiB with English": english, "MiB with German": _rss_mb()}
    return {**_found(model, cases), **costs, **memory}


def _model(name: str) -> Any:
    from hermes_memory_pgvector.embedding.bundled.e5 import E5
    from hermes_memory_pgvector.embedding.bundled.minilm import MiniLM
    from hermes_memory_pgvector.embedding.bundled.minilm_e5 import MiniLME5, unit

    class Alone:
        """all-MiniLM-L6-v2 for every language."""

        def __init__(self) -> None:
            self._model = MiniLM()

        def passage(self, text: str) -> Any:
            return unit(self._model.vector(self._model.tokens(text)))

        query = passage

    return {"minilm-e5": MiniLME5, "multilingual-e5-small": E5, "all-MiniLM-L6-v2": Alone}[name]()


def _found(model: Any, cases: Sequence[Case]) -> Mapping[str, str]:
    ranks: dict[str, list[int]] = {}
    for case in cases:
        texts = {name: text for _, of_session in case.sessions for name, text in of_session.items()}
        names, vectors = list(texts), np.array([model.passage(text) for text in texts.values()])
        for question in case.questions:
            order = [names[index] for index in np.argsort(-(vectors @ model.query(question.text)))]
            ranks.setdefault(question.category, []).append(min(order.index(name) for name in question.evidence))
    return {
        category: f"{np.mean(np.array(of) < 1):.2f} / {np.mean(np.array(of) < 5):.2f}" for category, of in ranks.items()
    }


def _cpu_ms(model: Any, text: str) -> float:
    model.passage(text)
    times = []
    for _ in range(5):
        before = time.thread_time()
        model.passage(text)
        times.append(time.thread_time() - before)
    return round(1000 * min(times), 1)


def _rss_mb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20
