"""The page and the metrics of a hundred thousand rows in hundreds of themes."""

from __future__ import annotations

import time

import not_on_citus
import pytest
from starlette.testclient import TestClient

from hermes_memory_pgvector.text import tokenizer

from .conftest import Site

ROWS, THEMES = 100_000, 400
TABLES = ("conversations", "memory_entries")
BYTES_MAX, SCANS_MAX = 400_000, 15
PATHS = (
    "/metrics", "/", "/themes", "/theme?name=theme-7", "/theme?name=theme-7&text=machine",
    "/theme?name=theme-7&session=s-7", "/theme?name=theme-7&kind=memory", "/search?q=machine+12345&theme=theme-7",
    "/search?q=machine+12345&scope=all", "/row?kind=turns&theme=theme-7&id={turn}", "/doctor",
)  # fmt: skip


def fill(site: Site, rows: int) -> None:
    """Turns of 60 days in equally large sessions and themes; a tenth of the rows are entries."""
    # An index is built faster at the end.
    for table in TABLES:
        site.sql(f"update pg_index set indisready = false where indexrelid = '{table}_meaning'::regclass")
    site.sql(
        "create table vectors as select place, (select array_agg(sin(number * (1 + place % 97) + place))::halfvec(384) "
        "from generate_series(1, 384) as number) as vector from generate_series(0, 999) as place"
    )
    words = tokenizer.document("machine")
    rest = "from generate_series(1, %s) as n join vectors on place = n %% 1000"
    common = f"'theme-' || n %% {THEMES}, 'machine ' || n, to_tsvector('simple', %s || ' ' || n), vector"
    ago = "now() - make_interval(mins => n %% 86400)"
    site.sql(
        f"insert into conversations (agent_identity, content, search, embedding, session_id, role, ts) select {common},"
        f" 's-' || n %% {5 * THEMES}, case n %% 2 when 0 then 'user' else 'assistant' end, {ago} {rest}",
        words, rows - rows // 10,
    )  # fmt: skip
    site.sql(
        f"insert into memory_entries (agent_identity, content, search, embedding, target, created_at) select {common}, "
        f"'memory', {ago} {rest}",
        words, rows // 10,
    )  # fmt: skip
    for table in TABLES:
        site.sql(f"reindex index {table}_meaning")
        site.sql(f"vacuum analyze {table}")
    site.sql("drop table vectors")


def seconds(client: TestClient, path: str) -> float:
    """How long an answer takes, which is of a bounded size."""
    started = time.monotonic()
    answer = client.get(path)
    took_s = time.monotonic() - started
    assert answer.status_code == 200, (path, answer.text)
    assert len(answer.content) < BYTES_MAX, path
    return took_s


def scan_seconds(site: Site) -> float:
    """How long the server takes to read the texts of all turns: a twentieth of a second on an idle machine."""
    started = time.monotonic()
    site.sql("select count(*) from conversations where content ilike '%nowhere%'")
    return time.monotonic() - started


@not_on_citus.all_shards
@pytest.mark.slow
def test_no_page_takes_much_longer_than_reading_all_texts(site: Site) -> None:
    fill(site, ROWS)
    turn = site.sql("select max(id) from conversations where agent_identity = 'theme-7'")[0][0]
    took: dict[str, list[float]] = {path: [] for path in ("a scan", *PATHS)}
    for _ in range(3):
        client = site.page()  # nothing is known from before
        took["a scan"].append(scan_seconds(site))
        for path in PATHS:
            took[path].append(seconds(client, path.format(turn=turn)))
    best = {path: min(each) for path, each in took.items()}
    assert {path: took_s for path, took_s in best.items() if took_s > SCANS_MAX * best["a scan"]} == {}
