"""Sanitizing of recalled text, which is quoted data that anybody may have written. Pure.

Before a model sees a text, hidden characters are removed. What could close the host's fence, or look like a message of
the system, is put in parentheses or marked as quoted.
"""

from __future__ import annotations

import re
import unicodedata

from .skeleton import COLONS, OPENING, edited, skeleton

# Controls, soft hyphen, fillers, zero widths, bidi controls, variation selectors, BOM, non-characters, the tags block.
_HIDDEN_CHARS = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_HIDDEN = re.compile(f"[{_HIDDEN_CHARS}]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LINE_END = re.compile("\r\n?|[\x85\u2028\u2029]")
# Other forms of ASCII letters, digits and brackets; the punctuation of Chinese text stays.
_DISGUISED_CHARS = (
    "\uff03\uff06\uff0d\uff0f-\uff19\uff1c\uff1e\uff21-\uff3d\uff3f\uff41-\uff5d"
    "\ufe64\ufe65\u24b6-\u24e9\U0001d400-\U0001d7ff"
)
_DISGUISED = re.compile(f"[{_DISGUISED_CHARS}]")
_DASH = r"[\s_\-]{0,3}"
_FENCE = r"(?:m|rn)e(?:m|rn)[o0]ry(?:_|[^\w<>\[\]{}()]){0,3}c[o0]ntext"
_SPEAKER = r"system|assistant|user|human|developer"
_KIND = r"notes?|prompts?|messages?|reminders?|instructions?|calls?|results?|responses?|outputs?"
_SPEAKERS_KIND = rf"(?:{_SPEAKER}|tool|function){_DASH}(?:{_KIND})"
_NAME = (
    rf"(?P<fence>{_FENCE})|{_SPEAKERS_KIND}|{_SPEAKER}|tool|function|(?:important{_DASH})?instructions?|prompt|sys"
    rf"|[il1]m{_DASH}(?:start|end|sep)|e[o0][tm]{_DASH}id|(?:start|begin|end){_DASH}of{_DASH}[a-z]+|python{_DASH}tag"
    rf"|(?:f[il1]m|vision|box|quad){_DASH}[a-z]+|think(?:ing)?|thought|reasoning|invoke|parameter"
    rf"|tools|scratch{_DASH}pad|available{_DASH}tools|arg{_DASH}(?:key|value)|seed:[a-z]+"
)
# Names that are threats only where they are the whole tag: most are words of other markup, too.
_WHOLE = (
    r"s|[besp][o0][sdpmt]|[be]os_token|pad|unk|mask|cls|sep|image|unused_?\d+|reserved_?\w+|(?:extra_id|special)_\d+"
    r"|0x[0-9a-f]{2}"
)
# A mail address is not a tag. A bar on one side is enough for a special token.
_TAG = re.compile(
    rf"<(?P<gap>\s*+)(?P<slash>[/\\!?|]{{0,2}})\s*+(?P<name>(?:\w{{1,20}}:)?(?:(?:{_NAME})(?![^\W_]|@)"
    rf"|(?:{_WHOLE})(?=\s*+[/|]?>))|(?<=<\|)\w[\w:.-]{{0,40}}(?=>)|\w[\w:.-]{{0,40}}(?=\|>))"
    r"(?:[^<>\[{\n]{0,80}?\s*+(?P<close>>))?",
    re.IGNORECASE,
)
_GENERIC = re.compile(r"\b[A-Z][a-z]\w*$")
# A bar that begins or ends a special token of a model, `<|…|>`, but not that of the operators `<|`, `|>` and `<|>`.
_BAR = re.compile(r"(?P<begin><\s?\|(?=[\w/]))|(?P<end>(?<=\w)\|\s?>)")
_TOKEN = (
    r"(?-i:[BE]OS|CLS|SEP|PAD|UNK|[gs]?MASK|IMG\w*|THINK|CALL_ID|(?:AVAILABLE|TOOL|SYSTEM|MODEL|BEGIN|END)_[A-Z_]+)"
    r"|unused_?\d+|control_\d+"
)
_BRACKET = re.compile(
    rf"[\[{{]\s*+(?P<slash>[/\\!?|]{{0,2}})\s*+(?P<name>{_FENCE})(?![^\W_])(?:[^<>\[\]{{}}\n]{{0,80}}?(?P<close>[\]}}]))?"
    rf"|\[\s*+/?\s*+(?:(?:INST|SYS|(?P<type>{_SPEAKER})|{_TOKEN})\s*+(?:(?P<end>\])|:)|{_SPEAKERS_KIND}(?![^\W_])(?:\s*+(?P<last>\]))?)"
    r"|\[\|[\w/ ]{1,40}\|(?P<barred>\])|\]~!?b(?P<bracket>[\[\]])|\[e~(?P<ending>\[)",
    re.IGNORECASE,
)
_SPEAKS = re.compile(rf"[\s#*_>+•-]*+(?P<name>{_SPEAKER})(?:{_DASH}(?:{_KIND}))?[*_]{{0,3}}\s{{0,9}}:", re.IGNORECASE)
_HEADED = re.compile(
    rf"\s*+#{{1,6}}\s*+(?P<name>instruction|response|input|{_SPEAKER})s?(?:{_DASH}(?:{_KIND}))?\s*+(?::|$)",
    re.IGNORECASE,
)
_SPEAKER_CHARS_MAX = 200
_LINE_MARKS = re.compile(r"(?:\s|#{1,6}(?=\s|$)|[-*+•>|](?=\s|$)|`{3,}|~{3,}|={3,}|-{3,})+")
# Names and ids, the most frequent lines: no pattern matches in them, so that `safe_line` need not search.
_PLAIN = re.compile(r"[A-Za-z0-9_]+(?:[ .,/-][A-Za-z0-9_]+)*")
# What the first steps of `visible` replace. Most texts have none of it, and one search is faster than four: it stops at
# unusual characters only, and looks behind to see which they are.
_UNUSUAL = re.compile(f"[^\\t\\n -~](?<=[{_HIDDEN_CHARS}{_DISGUISED_CHARS}\ud800-\udfff\r\x85\u2028\u2029])")
# A bracket in the address can end the text of another link.
_LINK = re.compile(r"\]\((?P<address>\s?<?(?:[^\s()<>\]]|\](?!\())*+)")
# A tag whose attributes load or follow an address, or run a script.
_LOADING = re.compile(
    r"<(?P<inside>\s?/?[a-z][^<>]{0,400}?[\s\"'/](?:src\w*|href|xlink:href|action|formaction|poster|data|background|style"
    r"|content|on\w+)\s?=[^<>]*+)(?P<close>>?)",
    re.IGNORECASE,
)
_HTTP = re.compile(r"http(s?)(?=:)", re.IGNORECASE)
# The first signs of what _TAG, _BAR and _BRACKET match, found as those of _UNUSUAL, and of what _SPEAKS and _HEADED do.
_MARKUP = re.compile(f"[^\\n -$'-;=?-Z^-z|~](?<=[{OPENING}])")
_SIGN = re.compile(f"[#{COLONS}]")


def visible(text: str) -> str:
    """The text without hidden characters and without anything that looks like markup of the host or of a model.

    Markup is found by its skeleton, so the spelling of its letters and brackets does not matter. Lines are kept.
    Idempotent.
    """
    if _UNUSUAL.search(text):
        text = _HIDDEN.sub("", _LINE_END.sub("\n", _SURROGATE.sub("\ufffd", text)))
        text = _HIDDEN.sub("", _DISGUISED.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text))
    if _MARKUP.search(text):
        shape = skeleton(text)
        # A tag over two lines can have been between the beginning and the end of a special token.
        for edits_of in (_special_tokens, _tags, _special_tokens):
            # A tag that is not closed can be by the bracket of one inside of it, once that one is in parentheses. Each
            # round makes the tag around longer, and a tag is at most 80 characters beyond its name.
            while edits := edits_of(shape):
                text = edited(text, shape, edits)
                shape = skeleton(text)
    return "\n".join(map(_quoted, text.split("\n")))


def _special_tokens(shape: str) -> dict[int, str]:
    """Parentheses around the special tokens of each line, nested ones too."""
    edits: dict[int, str] = {}
    at = 0
    for line in shape.split("\n") if "|" in shape else ():
        bars = list(_BAR.finditer(line))
        first = next((bar.start() for bar in bars if bar["begin"]), len(line))
        last = next((bar.start() for bar in reversed(bars) if bar["end"]), -1)
        for bar in bars:
            has_other = bar.start() < last if bar["begin"] else bar.start() > first
            if has_other:
                edits |= dict.fromkeys(range(at + bar.start(), at + bar.end()), "")
                edits[at + bar.start()] = "(" if bar["begin"] else ")"
        at += len(line) + 1
    return edits


def _tags(shape: str) -> dict[int, str]:
    """Parentheses in place of the brackets of tags, or a remark in place of one that is not closed on its line."""
    edits: dict[int, str] = {}
    for tag in _TAG.finditer(shape):
        closed = tag.start("close")
        if tag["fence"] or not ((tag["gap"] and closed < 0) or _is_argument(shape, tag.start(), tag["name"])):
            edits |= _parenthesis(shape, tag.start(), closed, tag.end("name"))
    for found in _BRACKET.finditer(shape):
        if found["type"] and _is_argument(shape, found.start(), found["type"]):
            continue
        closed = max(map(found.start, ("close", "end", "last", "barred", "bracket", "ending")))
        edits |= _parenthesis(shape, found.start(), closed, found.end() if closed < 0 else closed)
        if closed < 0 and not found["name"]:
            edits[found.start()] = "(quoted) "
    return edits


def _is_argument(shape: str, at: int, name: str) -> bool:
    """Whether the bracket at this place belongs to a generic type: `List<User>`, `Dict[str, List[User]]`."""
    return name.istitle() and _GENERIC.search(shape, max(0, at - 40), at) is not None


def _parenthesis(shape: str, opened: int, closed: int, name_end: int) -> dict[int, str]:
    """Parentheses at these places, without the spaces beside them."""
    edits = {opened: "("}
    inside = opened + 1
    while inside < name_end and (shape[inside].isspace() or shape[inside] in "/\\!?|"):
        if shape[inside].isspace():
            edits[inside] = ""
        inside += 1
    if closed >= 0:
        edits[closed] = ")"
        while shape[closed - 1].isspace():
            closed -= 1
            edits[closed] = ""
    return edits


def _quoted(line: str) -> str:
    """The line, marked as quoted if it begins as the message of a speaker or the heading of a prompt does."""
    if not _SIGN.search(line, 0, _SPEAKER_CHARS_MAX):
        return line
    head = line[:_SPEAKER_CHARS_MAX]
    shape = skeleton(head)
    speaker = _SPEAKS.match(shape) or _HEADED.match(shape)
    if not speaker:
        return line
    marks = range(len(shape) - len(shape.lstrip()), speaker.start("name"))
    line = edited(head, shape, dict.fromkeys(marks, "")) + line[_SPEAKER_CHARS_MAX:]
    indent = len(line) - len(line.lstrip())
    return f"{line[:indent]}(quoted) {line[indent:]}"


def safe_line(text: str, max_chars: int) -> str:
    """The sanitized text as one line of at most `max_chars` characters, without bullets and headings. Idempotent.

    A longer text is cut at a word and ends in `…`.
    """
    if _PLAIN.fullmatch(text):
        return cut_at_word(text, max_chars)
    shown = visible(text)
    lines = (_LINE_MARKS.sub("", line, 1) if _LINE_MARKS.match(line) else line for line in shown.split("\n"))
    # Joined lines can form a tag, and a cut can turn a longer word into the name of one.
    joined = " ".join(" ".join(lines).split())
    line = joined if joined == shown else visible(joined)
    cut = cut_at_word(line, max_chars)
    return cut if cut == line else cut_at_word(visible(cut), max_chars)


def unlinked_line(text: str, max_chars: int) -> str:
    """`safe_line` without links and images, which a client would load or follow when a model repeats them. Idempotent.

    Their addresses stay readable, those of plain text as they are.
    """
    line = safe_line(text, max_chars)
    if "](" in line or "![" in line:
        line = _LINK.sub(lambda link: f"] ({_without_scheme(link['address'])}", line).replace("![", "! [")
    if "<" in line:
        line = _LOADING.sub(lambda tag: f"({_without_scheme(tag['inside'])}{')' if tag['close'] else ''}", line)
    return cut_at_word(line, max_chars)


def _without_scheme(address: str) -> str:
    return _HTTP.sub(r"hxxp\1", address)


def cut_at_word(text: str, max_chars: int) -> str:
    """The text, or its beginning up to a word with `…`, of at most `max_chars` characters."""
    if len(text) <= max_chars:
        return text
    if max_chars < 1:
        return ""
    head = text[: max_chars - 1]
    space = head.rfind(" ")
    if not text[max_chars - 1].isspace() and space > max_chars * 2 // 3:
        head = head[:space]
    return head.rstrip() + "…"
