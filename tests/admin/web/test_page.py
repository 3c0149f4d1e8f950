"""The page over HTTP: what it shows, what it hides, and whom it answers."""

from __future__ import annotations

import base64
import re
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path

import httpx
import psycopg
import pytest
from commandline import hermes_pgvector
from loopback import Endpoint
from starlette.testclient import TestClient

from hermes_memory_pgvector.admin.web.reading import Reader
from hermes_memory_pgvector.errors import PgvectorError
from hermes_memory_pgvector.settings import load

from .conftest import Site

PERSON = "dm-telegram-1f3a5c7e9b0d2f46"
HOSTILE = "<script>alert('owned')</script><img src=x onerror=alert(1)>\"'&amp; \u202egnp.exe {{7*7}}"
TOKEN = "0123456789abcdef-token"
PATHS = ["/", "/themes", "/theme?name=ops", "/search?q=port&theme=ops", "/doctor", "/metrics", "/style.css"]


def get(page: TestClient, path: str = "/", **headers: str) -> httpx.Response:
    return page.get(path, headers=headers)


def shown(answer: httpx.Response) -> str:
    """The text of a page without its tags."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())


def test_the_pages_show_the_memory_and_never_a_person(site: Site) -> None:
    entry = site.entry("the staging database listens on port 5433", tags=["infra"])
    for number in range(3):
        site.turn(f"question {number} about the port", session="s7")
    site.turn("secret of a person", theme=PERSON)
    client = site.page()
    overview = shown(get(client))
    assert "1 entries" in overview
    assert "1 entry, 3 turns" in overview
    assert "1 theme of persons and chat rooms is not shown" in shown(get(client, "/themes"))
    timeline = get(client, "/theme?name=ops")
    assert "port 5433" in shown(timeline)
    assert "infra" in shown(timeline)
    row = shown(get(client, f"/row?kind=entries&theme=ops&id={entry}"))
    # The page runs in a home that a shell does not lead to.
    assert f"hermes-pgvector --home {site.home} edit {entry} --theme ops" in row
    assert f"hermes-pgvector --home {site.home} doctor --canary" in shown(get(client, "/doctor"))
    turn = site.sql("select id from conversations where agent_identity = %s", PERSON)[0][0]
    for path in (
        f"/theme?name={PERSON}",
        f"/search?q=secret&theme={PERSON}",
        f"/row?kind=turns&theme={PERSON}&id={turn}",
    ):
        answer = get(client, path)
        assert answer.status_code == 400
        assert "--persons" in shown(answer)
    for path in [*PATHS, "/search?q=secret+person&theme=ops&scope=all", f"/row?kind=turns&theme=ops&id={turn}"]:
        answer = get(client, path).text
        assert "secret of a person" not in answer
        assert PERSON not in answer


def test_persons_are_shown_with_the_flag(site: Site) -> None:
    site.turn("secret of a person", theme=PERSON)
    client = site.page(persons=True)
    assert PERSON in get(client, "/themes").text
    assert "secret of a person" in get(client, f"/theme?name={PERSON}").text
    assert "<mark>secret</mark>" in get(client, f"/search?q=secret&theme={PERSON}").text


def test_a_search_marks_words_and_says_why_each_hit_was_found(site: Site) -> None:
    site.entry("Backups of db-prod-03 run at 02:15")
    site.entry("the greenhouse valve sticks")
    client = site.page()
    page = get(client, "/search?q=when+does+the+backup+of+db-prod-03+run&theme=ops")
    assert "<mark>Backups</mark> of <mark>db-prod-03</mark>" in page.text
    assert "meaning: similarity 0." in page.text
    assert "words: " in page.text
    assert "BM25" in page.text
    assert "Degraded" not in page.text
    nothing = shown(get(client, "/search?q=&theme=ops"))
    assert "Type what an agent would ask" in nothing


def test_a_search_without_the_embedder_says_that_it_is_degraded(site: Site, endpoint: Endpoint) -> None:
    site.entry("the valve sticks")
    endpoint.status = 500
    page = get(site.page(), "/search?q=valve&theme=ops")
    assert page.status_code == 200
    assert "Degraded." in page.text
    assert "<mark>valve</mark>" in page.text


def test_hostile_text_comes_out_as_text(site: Site) -> None:
    theme = "<b>'\"/../x"
    entry = site.entry(HOSTILE, theme=theme, tags=["<i>tag"])
    site.turn(HOSTILE, theme=theme, session="<s>'\"&x=1")
    client = site.page()
    quoted = httpx.QueryParams({"name": theme})
    pages = [
        get(client), get(client, "/themes"), get(client, f"/theme?{quoted}"),
        get(client, f"/search?{httpx.QueryParams({'q': HOSTILE, 'theme': theme})}"),
        get(client, f"/row?{httpx.QueryParams({'kind': 'entries', 'theme': theme, 'id': entry})}"),
        get(client, f"/theme?{httpx.QueryParams(dict.fromkeys(('name', 'text', 'session', 'after'), HOSTILE))}"),
        get(client, f"/row?{httpx.QueryParams({'id': HOSTILE})}"),
        get(client, f"/{HOSTILE}"),
    ]  # fmt: skip
    assert "{{7*7}}" in unescape(pages[2].text)
    for page in pages:
        assert not re.search(r"<(script|img|b>'|i>tag|s>'|u>)", page.text), page.url
        assert "\u202e" not in re.sub(r'value="[^"]*"', "", page.text), "a form keeps what was typed"
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; form-action 'self'")
        assert page.headers["x-content-type-options"] == "nosniff"
        assert " style=" not in page.text
        assert all(re.match(r"/(?!/)", link) for link in re.findall(r'(?:href|src|action)="([^"]*)"', page.text))
    assert [page.status_code for page in pages] == [200, 200, 200, 200, 200, 400, 400, 404]
    command = re.findall(r"<code>(hermes-pgvector [^<]* edit .*?)</code>", pages[4].text)
    assert subprocess.run(
        ["bash", "-c", f"printf '%s' {unescape(command[0]).split('--theme ')[1]}"], capture_output=True, text=True
    ).stdout == theme  # fmt: skip


def test_a_timeline_has_every_row_once_page_by_page(site: Site) -> None:
    at = datetime(2026, 3, 4, 12, tzinfo=UTC)
    made = {f"turn number {number}." for number in range(120)}
    for number, text in enumerate(sorted(made)):
        site.turn(text, ts=at + timedelta(minutes=number // 7))
    client, path, seen = site.page(), "/theme?name=ops", []
    for _ in range(3):
        page = get(client, path).text
        found = re.findall(r"turn number \d+\.", page)
        assert 0 < len(found) <= 50
        seen += found
        after = re.search(r'class="next" href="([^"]+)"', page)
        path = unescape(after[1]) if after else ""
    assert path == ""
    assert sorted(seen) == sorted(made)


def test_bad_input_gets_a_page(site: Site) -> None:
    site.entry("a row")
    client = site.page()
    for path, status in [
        ("/theme?name=%00&text=%00%ff", 200), ("/theme?name=ops&kind=other", 400), ("/theme?name=ops&after=x", 400),
        ("/row?id=0", 400), ("/row?id=-1", 400), ("/row?id=99999999999999999999", 400), ("/row?id=1&theme=none", 400),
        ("/row", 400), ("/search?q=%00", 200), ("/search?q=%ed%a0%80", 200), (f"/theme?name={'x' * 5000}", 200),
        (f"/search?q={'word+' * 2000}", 200), ("/row?id=9223372036854775808", 400),
    ]:  # fmt: skip
        assert get(client, path).status_code == status, path
    assert shown(get(client, "/theme?name=ops")).count("a row") == 1


def test_only_this_machine_and_only_reading(site: Site) -> None:
    client = site.page()
    for host, status in [
        ("evil.example", 421), ("127.0.0.1.evil.example:80", 421), ("localhost:1", 200), ("[::1]:8766", 200),
        ("192.168.1.7:8766", 421), ("", 421),
    ]:  # fmt: skip
        assert get(client, "/healthz", Host=host).status_code == status, host
        assert get(client, "/themes", Host=host).status_code == status, host
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert client.request(method, "/").status_code == 405


def test_no_transaction_of_the_page_can_write(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.entry("it stays")
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", site.dsn)
    reader = Reader(load(site.home), site.home, persons=False)
    try:
        with pytest.raises(PgvectorError, match="ReadOnlySqlTransaction"), reader.transaction() as reading:
            reading.execute("delete from memory_entries")
    finally:
        reader.close()
    assert site.sql("select content from memory_entries") == [("it stays",)]


def test_a_token_is_asked_for_when_there_is_one(site: Site) -> None:
    client = site.page(token=TOKEN, hosts=("Memory.Example",))
    basic = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
    for given, status in [
        ("", 401), (f"Bearer {TOKEN}", 200), (f"bearer {TOKEN}x", 401), (f"Basic {basic}", 200), ("Basic ???", 401),
        (f"Basic {TOKEN}", 401), (TOKEN, 401), ("Bearer x y", 401), ("Bearer \u00e9", 401),
    ]:  # fmt: skip
        for path in ("/", "/metrics", "/style.css", "/nope"):
            answer = client.get(path, headers={"Authorization": given.encode()})
            assert answer.status_code == (404 if path == "/nope" and status == 200 else status), (given, path)
    assert "Basic" in get(client).headers["www-authenticate"]
    assert (get(client, "/healthz").status_code, get(client, "/readyz").status_code) == (200, 200)
    assert get(client, Host="memory.example", Authorization=f"Bearer {TOKEN}").status_code == 200
    assert get(client, Host="other.example", Authorization=f"Bearer {TOKEN}").status_code == 421


@pytest.mark.parametrize(
    ("options", "token", "said"),
    [
        (("--host", "0.0.0.0"), "", "needs a token"),
        (("--allow-host", "memory.example"), "", "needs a token"),
        ((), "short", "at least 16"),
        (("--host", "memory.example"), "", "--host is"),
    ],
)
def test_what_others_can_reach_needs_a_token(
    site: Site, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], token: str, said: str
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_SERVE_TOKEN", token)
    ended = hermes_pgvector("--home", str(site.home), "serve", "--port", "0", *options)
    assert ended.code in (1, 2)
    assert said in ended.err


def test_a_database_that_is_away_is_told_on_every_page(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", f"postgresql:///none?host={tmp_path}")
    client = site.page()
    assert get(client, "/healthz").status_code == 200
    assert get(client, "/readyz").status_code == 503
    assert "The database cannot be used" in get(client).text
    assert get(client, "/themes").status_code == 503
    assert "hermes_pgvector_up" in get(client, "/metrics").text
    assert "problem" in get(client, "/doctor").text


def test_a_locked_table_is_told_with_what_to_do(site: Site, database: str) -> None:
    client = site.page()
    with psycopg.connect(database) as blocker:
        blocker.execute("lock table conversations")
        told = get(client, "/themes")
    assert told.status_code == 503
    assert "a table is locked by another transaction" in told.text
    assert 'For more: <a href="/doctor">' in told.text


def test_a_signal_ends_the_server(site: Site) -> None:
    address = site.served()
    assert httpx.get(f"{address}/readyz", timeout=60).text == "ready\n"
    site.servers[-1].send_signal(signal.SIGTERM)
    assert site.servers[-1].wait(30) == 0
