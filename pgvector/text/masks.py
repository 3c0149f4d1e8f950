"""Masks of secrets of known shapes: keys and tokens of providers, private keys, passwords in addresses. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

# What documentation writes where a secret would stand.
_EXAMPLE = re.compile(
    r"example|sample|dummy|changeme|placeholder|redacted|your[_-]|xxx|\*\*\*|\.\.\.|^[\$%<{(\[]|^(?:user|pass|password|secret|token)$",
    re.IGNORECASE,
)
_MIXED = re.compile(r"(?=.*\d)(?=.*[A-Za-z])|[^\w.-]", re.DOTALL)
_MASK = re.compile(r"\[masked: [A-Za-z ]+\]")
_MEMBER = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")


@dataclass(frozen=True, slots=True)
class Shape:
    """Secrets that look alike. Only a text with one of the `signs`, in lower case, is searched.

    The group `secret` is masked, or without one the whole match. `loose` shapes need a value that no example has.
    """

    kind: str
    signs: tuple[str, ...]
    expression: str
    case: int = 0
    loose: bool = False

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled expression. Few texts have signs, and to compile all of them would delay the start."""
        return _compiled(self.expression, self.case)


@cache
def _compiled(expression: str, case: int) -> re.Pattern[str]:
    return re.compile(expression, case)


def _token(kind: str, *signs: str, tail: str, case: int = 0) -> Shape:
    """Tokens that begin with one of the signs."""
    heads = "|".join(map(re.escape, signs))
    return Shape(kind, tuple(map(str.lower, signs)), rf"(?<![A-Za-z0-9])(?:{heads}){tail}", case)


_SHAPES = (
    Shape(
        "private key",
        ("private key",),
        (
            r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
            # Headers such as `DEK-Info: AES-256-CBC,…` have hyphens and colons.
            r"(?:(?:[^-]|-(?!----)){0,20000}-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r"|(?:(?:\\n|\s){0,4}[A-Z][A-Za-z-]{1,30}: [^\n\\]{0,200}){0,9}[A-Za-z0-9+/=\\\s]{0,20000})"
        ),
    ),
    Shape("token", ("eyj",), r"(?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]{8,})?"),
    _token("API key", "sk-", tail=r"(?=[A-Za-z_-]{0,60}\d|[A-Za-z_-]{0,30}[A-Za-z]{24})[\w-]{20,}"),
    _token("API key", "AKIA", "ASIA", "ABIA", "ACCA", tail=r"[A-Z2-7]{16}(?![A-Za-z0-9])"),
    _token("API key", "AIza", tail=r"[\w-]{35}"),
    _token("token", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", tail=r"[A-Za-z0-9]{36,}"),
    _token("token", "github_pat_", "glpat-", "gldt-", "glrt-", "glptt-", "glagent-", tail=r"[\w-]{20,}"),
    _token("token", "xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-", tail=r"[\w-]{10,}"),
    _token("token", "hooks.slack.com/services/", tail=r"T\w{6,}/B\w{6,}/\w{16,}"),
    _token("API key", "sk_live_", "sk_test_", "rk_live_", "rk_test_", tail=r"[A-Za-z0-9_]{16,}"),
    _token("API key", "whsec_", "sb_secret_", tail=r"[A-Za-z0-9_]{16,}"),
    _token("token", "ya29.", "GOCSPX-", "hvs.", "dp.pt.", tail=r"[\w-]{20,}"),
    _token("token", "hf_", "gsk_", "xai-", "pplx-", "r8_", "npm_", "ntn_", "lin_api_", tail=r"[A-Za-z0-9]{30,}"),
    _token("token", "nvapi-", "pypi-AgE", "ATATT3", "tskey-", "sntrys_", tail=r"[\w=-]{20,}"),
    _token("token", "glsa_", "pscale_tkn_", "tvly-", tail=r"[\w-]{20,}"),
    _token("token", "dop_v1_", "shpat_", "shpca_", "shppa_", "shpss_", "dapi", "sbp_", tail=r"[0-9a-fA-F]{32,64}\b"),
    _token("API key", "SG.", tail=r"[\w-]{20,24}\.[\w-]{39,50}"),
    _token("API key", "SK", "key-", tail=r"(?=[a-f]{0,20}\d)[0-9a-f]{32}\b"),
    _token("private key", "AGE-SECRET-KEY-1", tail=r"[0-9A-Z]{50,}"),
    Shape("token", (":aa",), r"(?<!\w)\d{8,10}:AA[\w-]{32,34}(?![\w-])"),
    Shape("API key", ("key=",), r"(?:Account|SharedAccess)Key=(?P<secret>[A-Za-z0-9+/]{40,90}={1,2})"),
    Shape(
        "password",
        ("://",),
        r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@'\"<>]{0,100}:(?P<secret>[^\s/'\"]{1,200})(?=@)",
        loose=True,
    ),
    Shape(
        "token",
        ("authorization", "bearer", "api-key", "api_key"),
        (
            r"(?:\b(?:proxy-)?authorization['\"]?\s?[:=]\s?['\"]?(?:bearer|basic|token|digest|apikey)\s|\bbearer\s"
            r"|\bx-api-key['\"]?\s?:\s?['\"]?)\s?(?P<secret>[A-Za-z0-9._~+/-]{12,}={0,2})"
        ),
        re.IGNORECASE,
        loose=True,
    ),
    Shape(
        "password",
        ("password=", "passwd=", "pwd="),
        r"\b(?:password|passwd|pwd)=['\"]?(?P<secret>[^\s'\"&;,()<>{}\[\]$]{4,200})",
        re.IGNORECASE,
        loose=True,
    ),
    Shape(
        "secret",
        ("secret", "token", "password", "passwd", "key"),
        (
            r"\b[A-Z0-9_]{0,60}(?:SECRET|TOKEN|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|PRIVATE_KEY)(?:_[A-Z0-9_]{1,20})?"
            r"(?:=|:\s)['\"]?(?P<secret>[^\s'\"&;,()<>{}\[\]$]{12,200})"
        ),
        loose=True,
    ),
    Shape(
        "password",
        ("curl",),
        r"\bcurl\b[^\n]{0,300}?\s-u\s?['\"]?[^\s:'\"]{1,60}:(?P<secret>[^\s'\"$]{4,200})",
        loose=True,
    ),
)


def masked(text: str) -> str:
    """The text with `[masked: KIND]` in place of each secret."""
    # Most texts have no long word that is not only letters, which every secret has, or is beside.
    if not any(len(word) > 7 and not word[:-1].isalpha() for word in text.split()):
        return text
    lowered = text.lower()
    for shape in _SHAPES:
        if any(sign in lowered for sign in shape.signs):
            text = shape.pattern.sub(_mask_of(shape), text)
    return text


def around_masks(text: str) -> tuple[str, str] | None:
    """What is before the first mask of a text and after the last one; None without a mask."""
    masks = list(_MASK.finditer(text))
    return (text[: masks[0].start()], text[masks[-1].end() :]) if masks else None


def _mask_of(shape: Shape) -> Callable[[re.Match[str]], str]:
    def mask(found: re.Match[str]) -> str:
        start, end = found.span("secret") if shape.pattern.groupindex else found.span()
        secret = found.string[start:end]
        if shape.loose and (_EXAMPLE.search(secret) or not _MIXED.match(secret) or _MEMBER.fullmatch(secret)):
            return found[0]
        before, after = found.string[found.start() : start], found.string[end : found.end()]
        return f"{before}[masked: {shape.kind}]{after}"

    return mask
