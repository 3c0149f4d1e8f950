"""Compares index forms on given vectors: recall@10 against exact search, time of a query, CPU time of an insert.

It creates and drops the tables `bench_staged` and `bench_items`. Run it on an idle machine.
"""

# ruff: noqa: S608  (SQL is built from constants)
from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import psycopg
from pgvector.psycopg import register_vector
from recall_corpus import enlarged

from pgvector import HalfVector

TOP, BATCH, TIMED_ROWS = 10, 64, 6400


def server_cpu_s(pid: int) -> float:
    """CPU seconds that a local backend has used; wall time for a remote one."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.is_file():
        return time.perf_counter()
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def forms(width: int, mean: str) -> dict[str, tuple[str, list[tuple[int, str]]]]:
    """Index definition and (ef_search, query) pairs by the name of the form. `mean` is the mean vector, as SQL text."""
    near = f"SELECT id FROM bench_items ORDER BY embedding <=> %(q)s::halfvec({width}) LIMIT {TOP}"
    reranked = (
        "WITH near AS MATERIALIZED (SELECT id, embedding FROM bench_items ORDER BY {row} <~> {query} LIMIT {n}) "
        f"SELECT id FROM near ORDER BY embedding <=> %(q)s::halfvec({width}) LIMIT {TOP}"
    )
    bits = f"binary_quantize({{}})::bit({width})"
    plain, asked = bits.format("embedding"), bits.format(f"%(q)s::halfvec({width})")
    centred = bits.format(f"(embedding - '{mean}'::halfvec({width}))")
    centred_asked = bits.format(f"(%(q)s::halfvec({width}) - '{mean}'::halfvec({width}))")
    hnsw = "USING hnsw ({} {}) WITH (m = 16, ef_construction = 64)"
    found = {"no index": ("", [(40, near)])}
    for m, ef_construction in ((16, 64), (16, 40), (12, 48), (8, 32)):
        cut = hnsw.replace("m = 16, ef_construction = 64", f"m = {m}, ef_construction = {ef_construction}")
        definition = cut.format("embedding", "halfvec_cosine_ops")
        found[f"halfvec m={m} ef_construction={ef_construction}"] = (
            definition,
            [(ef, near) for ef in (40, 100, 200, 400)],
        )
    for name, row, query in (("bits", plain, asked), ("bits, centred", centred, centred_asked)):
        queries = [(n, reranked.format(row=row, query=query, n=n)) for n in (200, 400)]
        found[name] = (hnsw.format(f"({row})", "bit_hamming_ops"), queries)
    return found


def ids(connection: psycopg.Connection, statement: str, queries: np.ndarray) -> tuple[list[set[int]], float]:
    """The ids that each query finds, and the median milliseconds of a query."""
    found, times = [], []
    for query in queries:
        started = time.perf_counter()
        rows = connection.execute(statement, {"q": HalfVector(query)}, prepare=True).fetchall()
        times.append(time.perf_counter() - started)
        found.append({row[0] for row in rows})
    return found, 1000 * float(np.median(times))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench index", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dsn", help="a database whose role may create tables")
    parser.add_argument(
        "vectors", type=Path, metavar="VECTORS.npz",
        help="float arrays `passages` and `queries` of the same width, from the embedder to test",
    )  # fmt: skip
    parser.add_argument(
        "rows", type=int, nargs="?", default=0, help="mix passages into this many vectors (default: as given)"
    )
    return parser.parse_args()


def compare(dsn: str, vectors: Path, rows: int) -> None:
    """Print a line for each form and number of candidates."""
    data = np.load(vectors)
    queries = data["queries"]
    passages = enlarged(data["passages"], max(rows, len(data["passages"])))
    width = passages.shape[1]
    mean = str([round(float(number), 4) for number in data["passages"].mean(axis=0)])
    with psycopg.connect(dsn, autocommit=True) as connection:
        register_vector(connection)
        connection.execute("SET maintenance_work_mem = '512MB'; SET max_parallel_maintenance_workers = 0")
        connection.execute("SET plan_cache_mode = force_custom_plan; SET jit = off")
        connection.execute("DROP TABLE IF EXISTS bench_staged")
        connection.execute(f"CREATE TABLE bench_staged (id int PRIMARY KEY, embedding halfvec({width}))")
        with connection.cursor().copy("COPY bench_staged FROM STDIN") as copy:
            for number, vector in enumerate(passages):
                copy.write_row((number, str(vector.tolist())))
        exact: list[set[int]] = []  # from the first form, which has no index
        for name, (definition, searches) in forms(width, mean).items():
            connection.execute("DROP TABLE IF EXISTS bench_items; CREATE TABLE bench_items (LIKE bench_staged)")
            connection.execute("ALTER TABLE bench_items ALTER COLUMN embedding SET STORAGE PLAIN")
            last = len(passages) - min(TIMED_ROWS, len(passages) // 2)
            connection.execute(f"INSERT INTO bench_items SELECT * FROM bench_staged WHERE id < {last}")
            if definition:
                connection.execute(f"CREATE INDEX items_index ON bench_items {definition}")
            before = server_cpu_s(connection.info.backend_pid)
            for start in range(last, len(passages), BATCH):
                connection.execute(
                    f"INSERT INTO bench_items SELECT * FROM bench_staged WHERE id >= {start} AND id < {start + BATCH}"
                )
            cost = 1000 * (server_cpu_s(connection.info.backend_pid) - before) / (len(passages) - last)
            connection.execute("ANALYZE bench_items; SET enable_seqscan = off")
            size = connection.execute("SELECT pg_indexes_size('bench_items') / 1e6").fetchone()
            for ef_search, statement in searches:
                connection.execute(f"SET hnsw.ef_search = {ef_search}")
                found, query_ms = ids(connection, statement, queries)
                exact = exact or found
                recall = sum(len(a & b) for a, b in zip(found, exact, strict=True)) / sum(map(len, exact))
                print(
                    f"{len(passages)} rows, {name}, {ef_search} candidates: recall@10 {recall:.4f}, {query_ms:.2f} ms; "
                    f"insert {cost:.2f} ms of CPU a row, index {size[0] if size else 0:.1f} MB",
                    flush=True,
                )
        connection.execute("DROP TABLE bench_items, bench_staged")


if __name__ == "__main__":
    asked = arguments()
    compare(asked.dsn, asked.vectors, asked.rows)
