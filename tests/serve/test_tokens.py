from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from commandline import hermes_pgvector

from hermes_memory_pgvector.admin.console import local_time
from hermes_memory_pgvector.errors import BadArgument, SettingsError
from hermes_memory_pgvector.serve import tokens
from hermes_memory_pgvector.serve.tokens import Tokens


@pytest.fixture
def kept(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path / "pgvector")


def file(home: Path) -> Path:
    return home / "pgvector" / "mcp_tokens.json"


def test_a_token_opens_its_themes_until_it_is_revoked(kept: Tokens) -> None:
    first, secret = kept.add(["garden", "house"], "laptop", "")
    other, others = kept.add(["garden"], "", "never")
    assert kept.of(secret) == first
    assert kept.of(others) == other
    assert first.themes == ("garden", "house")
    assert kept.revoke("laptop") == first
    assert kept.of(secret) is None
    assert kept.of(others) == other


@pytest.mark.parametrize("change", ["", "hpg_", "{}x", "x{}", "{}\0", "\ud800", "é"])
def test_another_text_is_no_token(kept: Tokens, change: str) -> None:
    _, secret = kept.add(["garden"], "", "")
    assert kept.of(change.format(secret)) is None
    assert kept.of(secret.swapcase()) is None


def test_an_expired_token_opens_nothing_and_is_still_listed(kept: Tokens) -> None:
    _, secret = kept.add(["garden"], "", "2026-01-01T00:00:00+00:00")
    assert kept.of(secret) is None
    assert [token.expired for token in kept.all()] == [True]


def test_the_command_that_closes_the_file_does_so_in_a_folder_with_a_space(tmp_path: Path) -> None:
    kept = Tokens(tmp_path / "my home" / "pgvector")
    token, _ = kept.add(["garden"], "laptop", "")
    file(tmp_path / "my home").chmod(0o640)
    with pytest.raises(SettingsError) as refused:
        kept.all()
    subprocess.run(["sh", "-c", str(refused.value).rpartition("run: ")[2]], check=True)
    assert kept.all() == [token]


def test_only_a_hash_is_kept_in_a_file_that_nobody_else_can_read(kept: Tokens, tmp_path: Path) -> None:
    os.umask(0o022)
    token, secret = kept.add(["garden"], "laptop", "")
    assert secret not in file(tmp_path).read_text()
    assert secret.removeprefix(tokens.PREFIX) not in file(tmp_path).read_text()
    assert file(tmp_path).stat().st_mode & 0o777 == 0o600
    file(tmp_path).chmod(0o640)
    with pytest.raises(SettingsError, match="chmod 600"):
        kept.of(secret)
    assert token.id not in secret


def test_tokens_are_bounded(kept: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "TOKENS_MAX", 2)
    kept.add(["garden"], "", "")
    kept.add(["garden"], "", "")
    with pytest.raises(BadArgument, match="there are 2 tokens"):
        kept.add(["garden"], "", "")


def test_a_name_is_taken_once(kept: Tokens) -> None:
    token, _ = kept.add(["garden"], "Laptop", "2026-01-01T00:00:00+00:00")
    for name in ("Laptop", "laptop", token.id):
        with pytest.raises(BadArgument, match=f"there is a token '{name}'; give another name, or revoke that one"):
            kept.add(["cellar"], name, "")
    kept.add(["garden"], "", "")
    kept.add(["garden"], "", "")
    kept.revoke("Laptop")
    assert kept.add(["garden"], "laptop", "")[0].name == "laptop"


def test_the_name_of_two_tokens_revokes_neither(kept: Tokens, tmp_path: Path) -> None:
    kept.add(["garden"], "laptop", "")
    kept.add(["garden"], "second", "")
    # Earlier releases took a name twice.
    file(tmp_path).write_text(file(tmp_path).read_text().replace("second", "laptop"))
    with pytest.raises(BadArgument, match="2 tokens have the name 'laptop'"):
        kept.revoke("laptop")
    with pytest.raises(BadArgument, match="there is no token 'phone'"):
        kept.revoke("phone")
    assert len(kept.all()) == 2


def test_an_empty_name_revokes_no_token(kept: Tokens) -> None:
    kept.add(["garden"], "", "")
    with pytest.raises(BadArgument, match="there is no token ''"):
        kept.revoke("")
    assert len(kept.all()) == 1


@pytest.mark.parametrize("content", ["", "{", "[]", '{"tokens": [{}]}', '{"tokens": [{"themes": 1}]}', '{"tokens": 1}'])
def test_a_damaged_file_opens_nothing_and_says_so(kept: Tokens, tmp_path: Path, content: str) -> None:
    _, secret = kept.add(["garden"], "", "")
    file(tmp_path).write_text(content)
    with pytest.raises(SettingsError, match="cannot be read"):
        kept.of(secret)


@pytest.mark.parametrize(("key", "value"), [("expires", "2030-01-01T00:00:00"), ("sha256", 7), ("sha256", "é")])
def test_a_damaged_token_opens_nothing_and_says_so(kept: Tokens, tmp_path: Path, key: str, value: object) -> None:
    _, secret = kept.add(["garden"], "", "")
    (token,) = json.loads(file(tmp_path).read_text())["tokens"]
    file(tmp_path).write_text(json.dumps({"tokens": [{**token, key: value}]}))
    with pytest.raises(SettingsError, match="cannot be read"):
        kept.of(secret)


def test_the_commands_show_the_secret_once(tmp_path: Path) -> None:
    home = ("--home", str(tmp_path))
    made = hermes_pgvector("mcp", "token", "add", "--theme", "Garden", "--theme", "house", "--expires", "90d", *home)
    assert made.code == 0
    secret = made.out.strip()
    assert "garden, house; it is shown only now" in made.err
    listed = hermes_pgvector("mcp", "token", "list", "--json", *home)
    assert secret not in listed.shown
    (token,) = listed.document["tokens"]
    assert (token["themes"], token["expired"], "sha256" in token) == (["garden", "house"], False, False)
    shown = hermes_pgvector("mcp", "token", "list", *home).out
    assert token["id"] in shown
    assert all(local_time(datetime.fromisoformat(token[at])) in shown for at in ("created", "expires"))
    assert hermes_pgvector("mcp", "token", "revoke", token["id"], *home).code == 0
    assert json.loads(file(tmp_path).read_text()) == {"tokens": []}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--theme", "dm-telegram-0123456789abcdef"], "belongs to one person or room"),
        (["--theme", "cellar"], "theme cellar is not in allowed_themes"),
        (["--theme", "garden-*"], "theme 'garden-*' is a pattern; name each theme"),
        (["--theme", "garden", "--expires", "soon"], "--expires"),
        ([word for number in range(21) for word in ("--theme", f"garden-{number}")], "there are 21 themes"),
    ],
)
def test_a_token_for_what_may_not_be_served_is_not_made(tmp_path: Path, options: list[str], reason: str) -> None:
    (tmp_path / "pgvector").mkdir()
    themes = ["garden", "garden-*"]
    (tmp_path / "pgvector" / "config.json").write_text(json.dumps({"allowed_themes": themes}))
    refused = hermes_pgvector("mcp", "token", "add", *options, "--home", str(tmp_path))
    assert (refused.code, reason in refused.err) == (2, True)
    assert not file(tmp_path).exists()
