from __future__ import annotations

import random
import string
from pathlib import Path

import pytest
from growth import grows_linearly
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_memory_pgvector.text.masks import masked

DICE = random.Random(22)
WORD, HEX, UPPER = string.ascii_letters + string.digits, "0123456789abcdef", string.ascii_uppercase + "234567"


NO_DIGITS = str.maketrans(string.digits, "abcdefghij")


def some(alphabet: str, length: int) -> str:
    return "".join(DICE.choice(alphabet) for _ in range(length - 2)) + "7" + DICE.choice(alphabet)


# Made here, so that no search for secrets finds them in the source.
SECRETS = {
    "openai": "sk-proj-" + some(WORD + "_-", 80), "openai legacy": "sk-" + some(WORD, 48),
    "anthropic": "sk-ant-api03-" + some(WORD + "_-", 93), "openrouter": "sk-or-v1-" + some(HEX, 64),
    "aws": "AKIA" + some(UPPER, 16), "google": "AIza" + some(WORD, 35), "google oauth": "ya29." + some(WORD, 60),
    "github": "ghp_" + some(WORD, 36), "github fine": "github_pat_" + some(WORD, 82),
    "gitlab": "glpat-" + some(WORD, 20), "slack": "xoxb-" + some(string.digits, 12) + "-" + some(WORD, 24),
    "slack hook": "hooks.slack.com/services/T" + some(UPPER, 9) + "/B" + some(UPPER, 9) + "/" + some(WORD, 24),
    "stripe": "sk_live_" + some(WORD, 24), "stripe hook": "whsec_" + some(WORD, 32),
    "hugging face": "hf_" + some(WORD, 34), "hugging face of letters": "hf_" + some(WORD, 34).translate(NO_DIGITS),
    "groq": "gsk_" + some(WORD, 52), "npm": "npm_" + some(WORD, 36), "pypi": "pypi-AgE" + some(WORD, 150),
    "sendgrid": "SG." + some(WORD, 22) + "." + some(WORD, 43), "twilio": "SK" + some(HEX, 32),
    "mailgun": "key-" + some(HEX, 32), "telegram": some("123456789", 10) + ":AA" + some(WORD, 33),
    "databricks": "dapi" + some(HEX, 32), "digitalocean": "dop_v1_" + some(HEX, 64), "vault": "hvs." + some(WORD, 24),
    "shopify": "shpat_" + some(HEX, 32), "notion": "ntn_" + some(WORD, 43), "linear": "lin_api_" + some(WORD, 40),
    "azure": "AccountKey=" + some(WORD, 86) + "==", "age": "AGE-SECRET-KEY-1" + some(UPPER, 58),
    "gitlab routable": "glpat-" + some(WORD, 27) + ".01." + some(WORD, 9), "gitlab job": "glcbt-" + some(WORD, 24),
    "slack browser": "xoxc-" + some(string.digits, 12) + "-" + some(HEX, 64),
    "docker": "dckr_pat_" + some(WORD + "_-", 27),
    "gemini": "AQ.Ab8" + some(WORD + "_-", 47), "google refresh": "1//0" + some(WORD + "_-", 60),
    "bedrock": "ABSK" + some(WORD, 120), "vercel": "vcp_" + some(WORD, 56), "pinecone": "pcsk_" + some(WORD + "_", 70),
    "langsmith": "lsv2_pt_" + some(HEX, 32) + "_" + some(HEX, 10), "elevenlabs": "sk_" + some(HEX, 48),
    "doppler": "dp.st.prd." + some(WORD, 43), "terraform": some(WORD, 14) + ".atlasv1." + some(WORD, 64),
    "1password": "ops_eyJ" + some(WORD, 250), "age post-quantum": "AGE-SECRET-KEY-PQ-1" + some(UPPER, 58),
    "discord hook": "discord.com/api/webhooks/" + some(string.digits, 19) + "/" + some(WORD, 68),
    "jwe": "eyJ" + some(WORD, 30) + ".." + some(WORD, 16) + "." + some(WORD, 60) + "." + some(WORD, 22),
    "discord": "MTI2NDExNTQzMzkwNjE1ODUzMg." + some(WORD, 6) + "." + some(WORD + "_-", 38),
    "square": "EAAA" + some(WORD + "_-", 60), "facebook": "EAAC" + some(WORD, 180),
    "azure application": "aB18Q~" + some(WORD + "_.~", 34),
    "jwt": "eyJ" + some(WORD, 30) + ".eyJ" + some(WORD, 60) + "." + some(WORD, 43), "xai": "xai-" + some(WORD, 80),
}  # fmt: skip
PASSWORD = some(WORD, 9) + "!x"
AROUND = [
    "{}", "the key is {}, keep it", "export KEY='{}'", "x={}\n", "({})", '{{"key": "{}"}}', "key:{};",
    "\u043a\u043b\u044e\u0447 {}\u3002", "`{}`",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_of_a_provider_is_masked_and_what_is_around_it_stays(name: str) -> None:
    secret = SECRETS[name]
    for around in AROUND:
        shown = masked(around.format(secret))
        assert secret[-10:] not in shown
        assert secret.removeprefix("AccountKey=")[12:30] not in shown
        before, after = around.format("\0").split("\0")
        assert shown.startswith(before)
        assert shown.endswith(after)
        assert masked(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://app:{}@db.internal:5432/billing?sslmode=require",
        "redis://:{}@cache:6379/0",
        "https://bob:{}@git.internal/x.git",
        "host=db user=app password={} dbname=x",
        "Server=db;User Id=app;Pwd={};",
        "curl -s -u bob:{} https://api.internal/v1",
        "Authorization: Basic {}abcdef",
        'headers = {{"Authorization": "Bearer {}abcdefgh"}}',
        "x-api-key: {}abcdef",
        "DB_PASSWORD={}abcdef",
        "AWS_SECRET_ACCESS_KEY: {}abcdef",
        "curl -H 'authorization: token {}abcdef'",
        "PGPASSWORD={} psql -h db",
        "export DB_PASS='{}'",
        "DB_PASSWORD={}",
        'OPENAI_API_KEY = "{}abcdef"',
        "  password: {}",
        '{{"user": "app", "password": "{}"}}',
        'args: "{{\\"password\\": \\"{}\\"}}"',
        "| db | password: {} |",
        "machine api.github.com\n  login bob\n  password {}",
        "curl -s \\\n  --user bob:{} https://api.internal/v1",
        "wget --user bob --password {} http://x",
        "sshpass -p '{}' ssh bob@host",
        "docker login -u bob -p {} registry.internal",
        "https://bob@corp.com:{}@git.internal/x.git",
        "postgresql://app:{}/s@db.internal/billing",
        "postgresql://app:{}@/s@db-1:5432/billing?sslmode=require",
        "db.internal:5432:billing:app:{}",
        "echo '*:*:*:postgres:{}' >> ~/.pgpass",
        "https://maps.internal/api?key={}a1B2c3D4&page=2",
        "https://bucket.internal/report.csv?X-Amz-Signature={}a1B2c3D4&x=1",
        "Cookie: theme=dark; session={}abcdefgh; lang=de",
        "Set-Cookie: session={}abcdefgh; Path=/; HttpOnly",
        "curl -H 'Cookie: a=b; PHPSESSID={}abcdefgh' https://api.internal/v1",
        '{{"Cookie": "session={}abcdefgh"}}',
    ],
)
def test_a_password_in_an_address_or_a_header_is_masked_and_the_rest_stays(text: str) -> None:
    plain = ("orization", "x-api", "ookie", "?")
    secret = PASSWORD.replace("!", "9") if any(word in text for word in plain) else PASSWORD
    shown = masked(text.format(secret))
    assert secret[2:] not in shown
    assert "[masked: " in shown
    assert masked(shown) == shown
    assert shown.startswith(text.format("\0").split("\0")[0])


@pytest.mark.parametrize(
    "text",
    [
        "aws_secret_access_key = {}",
        "AWS_SESSION_TOKEN={}",
        '{{"SecretAccessKey": "{}", "Expiration": "2026-11-28"}}',
        'api_key: "{}"',
        '{{\\"client_secret\\": \\"{}\\"}}',
        "https://api.internal/v1?access_token={}&page=2",
        "PrivateKey = {}",
        "X-Vault-Token: {}",
    ],
)
@pytest.mark.parametrize("length", [40, 900])
def test_a_random_value_of_a_key_is_masked_to_its_end_in_any_notation(text: str, length: int) -> None:
    secret = "aB" + some(WORD + "+/", length)
    before, after = text.format("\0").split("\0")
    shown = masked(text.format(secret))
    assert shown == f"{before}[masked: secret]{after}"
    assert masked(shown) == shown


def test_a_password_of_letters_in_an_address_is_masked_and_one_that_says_nothing_is_not() -> None:
    assert masked("postgres://bob:correcthorsebattery@db/x") == "postgres://bob:[masked: password]@db/x"
    for text in ("postgres://postgres:postgres@db/x", "amqp://guest:guest@mq", "redis://user:password@cache"):
        assert masked(f"{text} of node-17") == f"{text} of node-17"


@pytest.mark.parametrize(
    "text",
    [
        "password: at least 12 characters", "the address without its password: `user@db-1:5432/billing`",
        "token: next-auth", "secret: /run/secrets/db1", "password: https://wiki.internal/reset1",
        "password=get_secret1()",
        "mysql -p -h node-17 billing", "docker run -p 8080:80 nginx", "--password-stdin reads it of node-17",
        "api_key: str = Field(max_length=64)", "the key: value-1 pairs", "token: 2f", "signature: sha256 with RSA-2048",
        "password: {{ vault_db_password1 }}", "secretName: db-credentials-2026", "git@github.com:org/repo-2.git",
        "git+ssh://git@github.com:org/repo-2.git@v1.0", "http://db-1:8080/a@b", "http://host:PORT/v1@b",
        "root:*:19000:0:99999:7:::", "wheel:*:0:root,op1", "Cookie: theme=dark2; lang=de",
        "the cookie lasts=12 hours", "tar -xf a.tgz; SECONDS_MAX=12",
        "https://host.internal:8443/a@b", "primary_key: billing_id_2026", "pass: 12 of 14 tests, 2 skipped",
    ],
)  # fmt: skip
def test_what_only_speaks_of_a_secret_is_not_touched(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\\n"])
def test_a_private_key_of_putty_is_masked_whole(newline: str) -> None:
    body = newline.join([*(some(WORD + "+/", 64) for _ in range(14)), some(WORD, 33) + "="])
    head = newline.join(["PuTTY-User-Key-File-2: ssh-rsa", "Public-Lines: 1", "AAAAB3", "Private-Lines: 15", ""])
    assert masked(f"{head}{body}{newline}Private-MAC: 0f") == f"{head}[masked: private key]{newline}Private-MAC: 0f"


def test_a_private_key_is_masked_whole_and_also_when_its_end_is_missing() -> None:
    body = "\n".join(some(WORD + "+/", 64) for _ in range(20))
    begin, end = "-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----"
    assert masked(f"here:\n{begin}\n{body}\n{end}\nthanks") == "here:\n[masked: private key]\nthanks"
    assert masked(f"here:\n{begin}\n{body}") == "here:\n[masked: private key]"
    assert body[:20] not in masked(f"{begin}\\n{body}\\n")


@pytest.mark.parametrize("newline", ["\n", "\\n"])
@pytest.mark.parametrize(
    ("kind", "headers"),
    [
        ("RSA PRIVATE KEY", ["Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,0123456789ABCDEF"]),
        ("PGP PRIVATE KEY BLOCK", ["Version: GnuPG v2", "Comment: made by a-tool - https://a.example"]),
    ],
)
def test_a_private_key_with_headers_is_masked_whole(kind: str, headers: list[str], newline: str) -> None:
    body = newline.join(some(WORD + "+/", 64) for _ in range(20))
    key = newline.join([f"-----BEGIN {kind}-----", *headers, "", body])
    assert masked(f"here: {key}{newline}-----END {kind}-----, thanks") == "here: [masked: private key], thanks"
    assert masked(f"here: {key}") == "here: [masked: private key]"


PLACES = [
    "billing",
    "gateway",
    "the parser",
    "our cluster",
    "node-17",
    "eu-west-1",
    "release 2.0.0",
    "ticket OPS-4711",
    "host db07",
    "room 101",
]
TECHNICAL = (Path(__file__).parents[1] / "data" / "technical_texts.txt").read_text(encoding="utf-8").splitlines()


def test_at_most_one_in_two_hundred_harmless_technical_texts_is_touched() -> None:
    texts = [text.replace("{}", place) for text in TECHNICAL for place in PLACES]
    assert len(texts) == 500
    touched = [text for text in texts if masked(text) != text]
    assert len(touched) <= 2, touched


@example(["password=[masked: token]"])
@given(
    st.lists(
        st.sampled_from([*SECRETS.values(), "password=", "://a:b1@", "Bearer", "[masked: token]", "a1"]), max_size=8
    )
)
def test_a_masked_text_stays_as_it_is(parts: list[str]) -> None:
    shown = masked(" ".join(parts))
    assert masked(shown) == shown
    assert not any(secret in shown for secret in SECRETS.values())


@pytest.mark.parametrize(
    "piece",
    [
        "sk-a1 ",
        "sk-",
        "eyJa1.",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nA-b: c",
        "://a1:",
        "password=a1 ",
        "Bearer a1b2c3d4 ",
        "Bearer a1",
        "curl -u a1:",
        "curl \\\n",
        'zz345678 password:\\"',
        "zz345678 token: 'aA1b",
        "zz345678 secret=aA1",
        "machine a1 login b ",
        "redis-cli a1 ",
        "A_1=",
        "SECRET_A1=",
        "key=A1",
        "EAA1a",
        "a1Q~",
        "cookie a1=b;",
        "?key=A1",
        "a:5432:b:c:d1 ",
        "Private-Lines: 1\nAAAA\n",
        "://:a1/@",
        "1",
    ],
)
def test_hostile_repetition_is_masked_in_linear_time(piece: str) -> None:
    assert grows_linearly(masked, piece, 5_000)
