"""Masks of secrets of known shapes: keys and tokens of providers, private keys, passwords in addresses. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

# What documentation writes where a secret would stand.
_EXAMPLE = re.compile(
    r"example|sample|dummy|changeme|placeholder|redacted|your[_-]|xxx|\*\*\*|\.\.\."
    r"|^[\$%<{(\[]|^https?:|^[~.]{0,2}/[a-z]+/|^(?:user|pass|password|secret|token)$",
    re.IGNORECASE,
)
_MIXED = re.compile(r"(?=.*\d)(?=.*[A-Za-z])|[^\w.-]", re.DOTALL)
_MASK = re.compile(r"\[masked: [A-Za-z ]+\]")
# What assigns a value to a name, also in JSON that is a string itself; a character of a value; a value, which goes up
# to the quote after it if there is one before it.
_IS = r"\\{0,3}['\"]?[ \t]{0,4}(?:=>?|:=?)[ \t]{0,4}\\{0,3}['\"]?"
_CHARACTER = r"(?:[^\s'\"`&;,()<>{}\[\]$\\]|\\(?![\"'nrt\\]))"
_VALUE = rf"(?:(?<=['\"])[^\s'\"\\]{{6,2000}}+(?=\\?['\"])|{_CHARACTER}{{6,2000}}+(?![(\[{{]))"
_MEMBER = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")


@dataclass(frozen=True, slots=True)
class Shape:
    """Secrets that look alike. Only a text with one of the `signs`, in lower case, is searched.

    The group `secret` is masked, or without one the whole match. `loose` shapes need a value that no example has, with
    more than letters unless they may have `letters` alone.
    """

    kind: str
    signs: tuple[str, ...]
    expression: str
    case: int = 0
    loose: bool = False
    letters: bool = False

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled expression. Few texts have signs, and to compile all of them would delay the start."""
        return _compiled(self.expression, self.case)


@cache
def _compiled(expression: str, case: int) -> re.Pattern[str]:
    return re.compile(expression, case)


def _token(kind: str, signs: str, tail: str) -> Shape:
    """Tokens that begin with one of these signs, with spaces between them."""
    heads = "|".join(map(re.escape, signs.split()))
    return Shape(kind, tuple(signs.lower().split()), rf"(?<![A-Za-z0-9])(?:{heads}){tail}")


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
    # A signed token has three parts, an encrypted one five, of which the second may be empty.
    Shape("token", ("eyj",), r"(?<![\w-])eyJ[\w-]{8,}\.(?:eyJ[\w-]{8,}(?:\.[\w-]{8,})?|[\w-]*(?:\.[\w-]{8,}){3})"),
    _token("API key", "sk-", r"(?=[A-Za-z_-]{0,60}\d|[A-Za-z_-]{0,30}[A-Za-z]{24})[\w-]{20,}"),
    _token("API key", "AKIA ASIA ABIA ACCA", r"[A-Z2-7]{16}(?![A-Za-z0-9])"),
    _token("API key", "ABSK", r"[A-Za-z0-9+/]{100,}={0,2}"),
    _token("API key", "AIza AQ.Ab8", r"[\w-]{35,}"),
    _token("token", "ghp_ gho_ ghu_ ghs_ ghr_", r"[A-Za-z0-9]{36,}"),
    _token(
        "token",
        (
            "github_pat_ glpat- gldt- glrt- glptt- glagent- glcbt- glft- glimt- gloas- glsoat- GR1348941 dckr_pat_ "
            "dckr_oat_"
        ),
        r"[\w-]{20,}(?:\.\w\w\.\w{7,9}\b)?",
    ),
    _token(
        "token",
        "xoxa- xoxb- xoxc- xoxd- xoxe- xoxe.xoxb- xoxe.xoxp- xoxo- xoxp- xoxr- xoxs- xapp-",
        r"(?:[\w-]|%[0-9A-F]{2}){10,}",
    ),
    _token("token", "hooks.slack.com/services/", r"T\w{6,}/B\w{6,}/\w{16,}"),
    _token("token", "discord.com/api/webhooks/ discordapp.com/api/webhooks/", r"\d{15,20}/[\w-]{40,}"),
    _token("API key", "sk_live_ sk_test_ rk_live_ rk_test_ sk_org_live_", r"[A-Za-z0-9_]{16,}"),
    _token("API key", "whsec_ sb_secret_", r"[A-Za-z0-9_]{16,}"),
    _token("token", "ya29. 1//0 GOCSPX- hvs. hvb. hvr.", r"[\w-]{20,}"),
    _token("token", "dp.pt. dp.ct. dp.sa. dp.st.", r"(?:[\w-]{2,35}\.)?[A-Za-z0-9]{40,44}\b"),
    _token(
        "token",
        "hf_ api_org_ gsk_ xai- pplx- r8_ npm_ ntn_ lin_api_ lin_oauth_ vcp_ nfp_ jina_ napi_ ATBB",
        r"[A-Za-z0-9]{30,}",
    ),
    _token("token", "secret_ rnd_ phx_ csk-", r"(?=[A-Za-z]{0,60}\d)[A-Za-z0-9]{30,}"),
    _token(
        "token",
        (
            "nvapi- pypi-AgE ATATT3 ATCTT3 tskey- sntrys_ sntryu_ figd_ tgp_v1_ lsv2_ pcsk_ CCIPAT_ CCIPRJ_ xkeysib- "
            "sq0atp- sq0csp- ops_eyJ"
        ),
        r"[\w=-]{20,}",
    ),
    _token("token", "fm2_ fo1_ glc_eyJ", r"[\w+/=-]{40,}"),
    _token("token", "glsa_ pscale_tkn_ pscale_pw_ pscale_oauth_ tvly-", r"[\w-]{20,}"),
    _token(
        "token",
        "dop_v1_ dor_v1_ doo_v1_ shpat_ shpca_ shppa_ shpss_ dapi sbp_ pul- fc- bkua_ rubygems_",
        r"[0-9a-fA-F]{32,64}\b",
    ),
    _token("API key", "sk_", r"[0-9a-f]{48}\b"),
    _token("API key", "NRAK-", r"[A-Z0-9]{27}\b"),
    _token("API key", "re_", r"[A-Za-z0-9]{8}_[A-Za-z0-9]{24}\b"),
    _token("API key", "SG.", r"[\w-]{20,24}\.[\w-]{39,50}"),
    _token("API key", "SK key-", r"(?=[a-f]{0,20}\d)[0-9a-f]{32}\b"),
    _token("token", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}\b"),
    Shape("token", (".atlasv1.",), r"(?<![\w.])[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,}"),
    _token("private key", "AGE-SECRET-KEY-1 AGE-SECRET-KEY-PQ-1", r"[0-9A-Z]{50,}"),
    Shape("token", (":aa",), r"(?<!\w)\d{8,10}:AA[\w-]{32,34}(?![\w-])"),
    Shape("API key", ("key=",), r"(?:Account|SharedAccess)Key=(?P<secret>[A-Za-z0-9+/]{40,90}={1,2})"),
    Shape(
        "password",
        ("://",),
        r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:'\"<>]{0,100}:(?P<secret>[^\s/'\"]{1,200})(?=@)",
        loose=True,
    ),
    Shape(
        "password",
        ("://",),
        r"://(?P<user>[^\s/:'\"<>]{0,100}):(?P<secret>(?!(?P=user)@|\[masked)[^\s/'\"@]{8,200})(?=@)",
        loose=True,
        letters=True,
    ),
    Shape("token", ("://",), r"://(?P<secret>[A-Za-z0-9_]{30,255})@", loose=True),
    Shape(
        "token",
        ("authorization", "bearer", "api-key", "api_key"),
        (
            r"(?:\b(?:proxy-)?authorization['\"]?\s?[:=]\s?['\"]?(?:bearer|basic|token|digest|apikey|key)\s|\bbearer\s"
            r"|\bx-api-key['\"]?\s?:\s?['\"]?)\s?(?P<secret>[A-Za-z0-9._~+/-]{12,}={0,2})"
        ),
        re.IGNORECASE,
        loose=True,
    ),
    Shape(
        "password",
        ("password=", "passwd=", "pwd="),
        rf"\b(?:password|passwd|pwd)=['\"]?(?P<secret>{_CHARACTER}{{4,2000}}+)(?!\(\))",
        re.IGNORECASE,
        loose=True,
    ),
    Shape(
        "secret",
        ("secret", "token", "password", "passwd", "key"),
        (
            r"\b[A-Z0-9_]{0,60}(?:SECRET|TOKEN|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|PRIVATE_KEY)(?:_[A-Z0-9_]{1,20})?"
            rf"{_IS}(?P<secret>{_CHARACTER}{{12,4000}}+)"
        ),
        loose=True,
    ),
    Shape(
        "password",
        ("pass", "pwd"),
        rf"(?:password|passwd|pwd|passphrase|_pass){_IS}(?P<secret>{_VALUE})",
        re.IGNORECASE,
        loose=True,
    ),
    # In any case, where the value looks random: digits and letters of both cases, or hexadecimal digits.
    Shape(
        "secret",
        ("secret", "token", "key", "sig="),
        (
            rf"(?i:secret|token|(?:api|access|secret|private|preshared|signing|encryption)[_-]?key|\bsig){_IS}"
            r"(?P<secret>(?=[\w+/.~%-]*\d)"
            r"(?:(?=[\w+/.~%-]*[a-z])(?=[\w+/.~%-]*[A-Z])[\w+/.~%-]{16,4000}+={0,2}|[0-9a-f-]{24,200}+(?![\w/.])))"
        ),
        loose=True,
    ),
    Shape(
        "password",
        ("machine",),
        r"\bmachine\s{1,9}\S{1,200}\s{1,9}login\s{1,9}\S{1,200}\s{1,9}password\s{1,9}(?P<secret>\S{4,200})",
        loose=True,
    ),
    Shape(
        "password",
        ("curl",),
        (
            r"\bcurl\b(?:[^\n]|(?<=\\)\n){0,300}?\s(?:-u\s?|--(?:proxy-)?user[\s=])['\"]?[^\s:'\"]{1,60}"
            r":(?P<secret>[^\s'\"$]{4,200})"
        ),
        loose=True,
    ),
    Shape(
        "password",
        ("--pass", "sshpass", "docker login", "podman login", "mysql", "mariadb", "redis-cli"),
        (
            r"(?:--pass(?:word|wd|phrase)?[ =]|\bsshpass -p ?|\b(?:docker|podman) login\b[^\n]{0,200}? -p "
            rf"|\b(?:mysql\w*|mariadb)\b[^\n]{{0,200}}? -p|\bredis-cli\b[^\n]{{0,200}}? -a )['\"]?"
            rf"(?P<secret>{_CHARACTER}{{6,200}}+)"
        ),
        loose=True,
    ),
    # A bot of Discord: its id in base64, whose digits have few forms, the time, and a signature.
    Shape("token", (".",), r"(?:[MNO][DTjz][AEIMQUYcgk][0-5w-z]){5,6}[\w-]{0,4}\.[\w-]{6,7}\.[\w-]{27,50}(?![\w-])"),
    # Square and Facebook. Many more texts in base64 begin so.
    Shape(
        "token",
        ("eaa",),
        r"(?<![\w+/-])EAA(?!\w{0,20}AAAA)(?=\w*\d)(?=\w*[a-z])(?:A[\w-]{60}|[A-Za-z0-9]{97,500})(?![\w+/=-])",
    ),
    # An application of Azure.
    Shape("secret", ("q~",), r"(?<![\w.~-])[\w.~]{3}\dQ~[\w.~-]{31,34}(?![\w~-])"),
    Shape(
        "cookie",
        ("cookie",),
        (
            r"(?i:cookie['\"]?[ \t]?[:= ][ \t]?['\"]?|;[ \t]?)[\w.-]{1,80}="
            r"(?P<secret>(?=[\w+/.~%:-]*\d)(?=[\w+/.~%:-]*[A-Za-z])[\w+/.~%:-]{16,4000}+={0,2})"
        ),
        loose=True,
    ),
    Shape(
        "secret",
        ("key=", "code=", "signature=", "session="),
        (
            r"(?i:[?&](?:key|code|session|(?:x-(?:amz|goog)-)?signature)=)(?P<secret>(?=[\w+/.~%-]*\d)"
            r"(?:(?=[\w+/.~%-]*[a-z])(?=[\w+/.~%-]*[A-Z])[\w+/.~%-]{16,4000}+={0,2}|[0-9a-f]{24,600}+(?![\w/.])))"
        ),
        loose=True,
    ),
    # A line of .pgpass.
    Shape(
        "password",
        (":543", ":6432:", ":*:"),
        (
            r"(?<![^\s'\"`])[^\s:'\"`]{1,200}:(?:543\d|6432|\*):[^\s:]{1,100}:[^\s:]{1,100}:"
            r"(?P<secret>[^\s:'\"`]{4,200})(?![^\s'\"`])"
        ),
        loose=True,
    ),
    Shape(
        "private key",
        ("private-lines",),
        (
            r"Private-Lines: \d{1,4}(?:\\r|\\n|\s){1,4}"
            r"(?P<secret>(?:[A-Za-z0-9+/]{1,100}={0,2}(?:\\r|\\n|\s){1,4}){0,400}[A-Za-z0-9+/]{16,100}={0,2})"
        ),
    ),
    # A password with a slash in it. What is before one in other addresses is a port.
    Shape(
        "password",
        ("://",),
        (
            r"://[^\s/:@'\"<>]{0,100}:(?!(?:\d{1,5}|(?i:port))[/?#]|\[masked)"
            r"(?P<secret>[^\s/'\"<>]{0,100}/[^\s'\"<>]{1,100})(?=@[A-Za-z0-9][\w.-]{0,252}(?:[:/?#\s'\"]|$))"
        ),
        loose=True,
    ),
)


def masked(text: str) -> str:
    """The text with `[masked: KIND]` in place of each secret."""
    # Most texts have no long word that is not only letters, which every secret has, or is beside.
    if all(word[:-1].isalpha() for word in text.split() if len(word) > 7):
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


def _is_mixed(value: str) -> bool:
    return _MIXED.match(value) is not None and _MEMBER.fullmatch(value) is None


def _mask_of(shape: Shape) -> Callable[[re.Match[str]], str]:
    def mask(found: re.Match[str]) -> str:
        start, end = found.span("secret") if shape.pattern.groupindex else found.span()
        secret = found.string[start:end]
        if shape.loose and (_EXAMPLE.search(secret) or not (shape.letters or _is_mixed(secret))):
            return found[0]
        before, after = found.string[found.start() : start], found.string[end : found.end()]
        return f"{before}[masked: {shape.kind}]{after}"

    return mask
