"""Measures how many rows one server holds: loading, indexes, recall, inserts, VACUUM, the size of records.

The figures are added to `figures.json` in the folder of the data, which `--data` keeps for other steps.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import scale_measure as measure
from recall_comparison import log
from recall_corpus import seeds
from scale_corpus import ScaleCorpus
from scale_load import load
from servers import UNSYNCED, kept_postgres

from hermes_memory_pgvector.settings import Settings

ROOT = Path(__file__).resolve().parent.parent.parent
EXACT_ROWS_MAX = int(Settings.model_fields["exact_rows_max"].default)
STEPS = ("load", "recall", "tune", "insert", "records", "vacuum", "vacuum20", "rebuild")
# First and number of the percent of rows that a step deletes, and whether it builds the graph index again.
DELETIONS = {"vacuum": (0, 1, False), "vacuum20": (1, 20, False), "rebuild": (21, 20, True)}
RANKS = (1, 10, 100, 1000, 10_000)
RECALL_LEAST = 0.99


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="turns of a year (default 100000)")
    parser.add_argument(
        "--themes", type=int, default=10_000, help="themes, the n-th with a share of 1/n (default 10000)"
    )
    parser.add_argument("--length", type=int, default=384, help="numbers of a vector (default 384)")
    parser.add_argument("--vectors", default="", metavar="NPZ", help="as for scripts/bench recall")
    parser.add_argument("--steps", nargs="+", default=STEPS, choices=STEPS, help="what to do (default: all)")
    parser.add_argument("--questions", type=int, default=100, help="questions for each theme (default 100)")
    parser.add_argument("--turns", type=int, default=1000, help="turns to insert (default 1000)")
    parser.add_argument("--vacuum-s", type=int, default=3600, help="longest time of VACUUM (default 3600)")
    parser.add_argument("--shared-buffers", type=int, metavar="MB", help="default: 1 GB and 1 KB a row")
    parser.add_argument(
        "--maintenance", type=int, metavar="MB", help="memory for a build (default: as the graph needs)"
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the server's files are, and stay")
    parser.add_argument("--exact-rows-max", type=int, default=EXACT_ROWS_MAX, help="the setting (default 50000)")
    return parser.parse_args()


def corpus_of(asked: argparse.Namespace) -> ScaleCorpus:
    passages, questions = seeds(asked.vectors, ROOT / ".cache" / "bench_vectors.npz")
    times, rest = divmod(asked.length, passages.shape[1])
    if rest:
        raise SystemExit(f"--length must be a multiple of {passages.shape[1]}, the length of the vectors")
    return ScaleCorpus(asked.rows, asked.themes, passages, questions[: asked.questions], times)


def graph_mb(rows: int, length: int) -> int:
    """Megabytes of memory in which the graph of so many rows is built."""
    return 64 + rows * (2 * length + 900) // 10**6


def run(asked: argparse.Namespace, folder: Path) -> float:
    """Take the steps that were asked for; returns the lowest recall@10, 1.0 when none was measured."""
    corpus = corpus_of(asked)
    log(f"{corpus.rows:,} rows, {corpus.themes:,} themes, {corpus.dimensions} numbers")
    options = {
        "shared_buffers": f"{asked.shared_buffers or 1024 + corpus.rows // 1000}MB",
        "maintenance_work_mem": f"{asked.maintenance or graph_mb(corpus.rows, corpus.dimensions)}MB",
        "max_parallel_maintenance_workers": "2",
        "max_wal_size": "4GB",
        # It would begin while something else is measured.
        "autovacuum": "off",
    }
    figures = Figures(folder / "figures.json", settings=options)
    if "load" in asked.steps:
        with kept_postgres(folder, **{**options, **UNSYNCED}) as server:
            figures.add("load", load(server.dsn, corpus))
    with kept_postgres(folder, **options) as server:
        dsn = server.dsn
        figures.add("sizes", measure.sizes(dsn))
        worst = 1.0
        if "recall" in asked.steps or "tune" in asked.steps:
            worst = _recalls(asked, dsn, corpus, figures)
        if "insert" in asked.steps:
            figures.add("insert", measure.inserts(dsn, corpus, asked.turns))
        if "records" in asked.steps:
            figures.add("records", measure.records(dsn))
        for step, (first, percent, rebuild) in DELETIONS.items():
            if step in asked.steps:
                figures.add(step, measure.deletion(dsn, first, percent, asked.vacuum_s, rebuild=rebuild))
    return worst


def _recalls(asked: argparse.Namespace, dsn: str, corpus: ScaleCorpus, figures: Figures) -> float:
    limit = asked.exact_rows_max
    sizes = measure.theme_sizes(dsn)
    chosen = measure.chosen_themes(sizes, RANKS, limit)
    tenth_best = corpus.tenth_best(chosen)
    log("all rows were compared")
    measure.count_words(dsn)
    log("common words are counted")
    found = []
    if "recall" in asked.steps:
        found += figures.add("recall", measure.recalls(dsn, corpus, tenth_best, sizes, limit))
    if "tune" in asked.steps:
        figures.add("tune", measure.tune(dsn, limit + 1))
        large = {
            theme: best
            for theme, best in tenth_best.items()
            if theme is None or sizes[measure.theme_name(theme)] > limit
        }
        found += figures.add("tuned", measure.recalls(dsn, corpus, large, sizes, limit))
    return min((row["recall"] for row in found), default=1.0)


class Figures:
    """What was measured, in a file that is written after each step."""

    def __init__(self, path: Path, **first: Any) -> None:
        self._path = path
        self._found = json.loads(path.read_text()) if path.is_file() else {}
        self._found |= first

    def add(self, name: str, found: Any) -> Any:
        self._found[name] = found
        self._path.write_text(json.dumps(self._found, indent=1))
        return found


def main() -> None:
    asked = arguments()
    if asked.data:
        worst = run(asked, asked.data)
    else:
        with tempfile.TemporaryDirectory(prefix="hermes-pgvector-run-") as folder:
            worst = run(asked, Path(folder))
            print(Path(folder, "figures.json").read_text())
    if worst < RECALL_LEAST:
        sys.exit(f"the lowest recall@10 is {worst:.4f}, below {RECALL_LEAST}")


if __name__ == "__main__":
    main()
