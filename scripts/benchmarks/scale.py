"""Measures how many rows one server holds: load, indexes, recall, inserts, vacuum, at a size that you choose."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from recall_comparison import log
from recall_corpus import vectors
from scale_corpus import ScaleCorpus
from scale_load import load
from servers import UNSYNCED, kept_postgres

ROOT = Path(__file__).resolve().parent.parent.parent


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="rows in total (default 100000)")
    parser.add_argument("--themes", type=int, help="themes (default: one for 1,000 rows)")
    parser.add_argument("--length", type=int, default=384, help="numbers of a vector (default 384)")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="the server's files, which stay there")
    parser.add_argument("--shared-buffers", default="1GB")
    parser.add_argument("--maintenance", default="1GB")
    parser.add_argument("--workers", default="1")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    cache = ROOT / ".cache" / "bench_vectors.npz"
    vectors(1, 384, "", cache)
    data = np.load(cache)
    questions = data["queries"][np.random.default_rng(3).permutation(len(data["queries"]))]
    corpus = ScaleCorpus(
        asked.rows, asked.themes or max(10, asked.rows // 1000), data["passages"], questions, asked.length // 384
    )
    options = {
        "shared_buffers": asked.shared_buffers,
        "maintenance_work_mem": asked.maintenance,
        "max_parallel_maintenance_workers": asked.workers,
    }
    log(f"{corpus.rows:,} rows, {corpus.themes:,} themes, {corpus.dimensions} numbers")
    with kept_postgres(asked.data, **options, **UNSYNCED, autovacuum="off") as server:
        steps = load(server.dsn, corpus)
        (asked.data / "load.json").write_text(json.dumps(steps, indent=1))


if __name__ == "__main__":
    main()
