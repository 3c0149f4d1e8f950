"""Sanitizing of recalled text, which is quoted data that anybody may have written. Pure.

Before a model sees a text, hidden characters are removed. What could close the host's fence, or look like a message of
the system, is put in parentheses or marked as quoted.
"""

from __future__ import annotations

import re
import unicodedata

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
_DASH = r"[\s_\-\u2010-\u2015\u2212]{0,3}"
_FENCE = rf"memory{_DASH}context"
_SPEAKER = r"system|assistant|user|human|developer"
_KIND = r"notes?|prompts?|messages?|reminders?|instructions?|calls?|results?|responses?|outputs?"
_OPEN = r"(?:[<‹⟨\u2329〈《«]|&(?:amp;)*+(?:lt|#0*+60|#x0*+3c|lsaquo|laquo|lang);?)"
_CLOSE = r"(?:[>›⟩\u232a〉》»]|&(?:amp;)*+(?:gt|#0*+62|#x0*+3e|rsaquo|raquo|rang);?)"
_NAME = (
    rf"{_FENCE}|(?:{_SPEAKER}|tool|function)(?:{_DASH}(?:{_KIND}))?|(?:important{_DASH})?instructions?|prompt"
    rf"|im{_DASH}(?:start|end|sep)|sys|eot{_DASH}id|endoftext|(?:start|end){_DASH}of{_DASH}turn|think(?:ing)?"
)
# A mail address is not a tag.
_TAG = re.compile(
    rf"{_OPEN}\s*+(?P<slash>[/\\!?|]{{0,2}})\s*+(?P<name>{_NAME})(?![^\W_]|@)"
    rf"(?:(?P<rest>[^<>‹›⟨\u2329〈《«&\n]{{0,80}}?){_CLOSE})?",
    re.IGNORECASE,
)
# A bar that begins or ends a special token of a model, `<|…|>`, but not that of the operators `<|`, `|>` and `<|>`.
_BAR = re.compile(rf"(?P<begin>{_OPEN}\s?\|(?=[\w/]))|(?P<end>(?<=\w)\|\s?{_CLOSE})", re.IGNORECASE)
_BRACKET = re.compile(
    rf"\[\s*+(?P<slash>/?)\s*+(?:(?P<name>INST|SYS|{_SPEAKER})\s*+(?P<end>[\]:：])"
    rf"|(?P<note>(?:{_SPEAKER}|tool|function){_DASH}(?:{_KIND}))(?![^\W_])(?P<close>\s*+\])?)",
    re.IGNORECASE,
)
_SPEAKS = re.compile(
    rf"^(\s*+)[\s#*_>+•-]*+((?:{_SPEAKER})(?:{_DASH}(?:{_KIND}))?[*_]{{0,3}}\s{{0,9}}[:：])", re.IGNORECASE
)
_HEADED = re.compile(
    rf"^(\s*+)#{{1,6}}\s*+((?:instruction|response|input|{_SPEAKER})s?(?:{_DASH}(?:{_KIND}))?\s*+(?:[:：]|$))",
    re.IGNORECASE,
)
_QUOTED = r"\1(quoted) \2"
_LINE_MARKS = re.compile(r"(?:\s|#{1,6}(?=\s|$)|[-*+•>|](?=\s|$)|`{3,}|~{3,}|={3,}|-{3,})+")
# Names and ids, the most frequent lines: no pattern matches in them, so that `safe_line` need not search.
_PLAIN = re.compile(r"[A-Za-z0-9_]+(?:[ .,/-][A-Za-z0-9_]+)*")
# What the first steps of `visible` replace. Most texts have none of it, and one search is faster than four: it stops at
# unusual characters only, and looks behind to see which they are.
_UNUSUAL = re.compile(f"[^\\t\\n -~](?<=[{_HIDDEN_CHARS}{_DISGUISED_CHARS}\ud800-\udfff\r\x85\u2028\u2029])")
# The first signs of what _TAG, _BAR and _BRACKET match.
_MARKUP = re.compile(r"[<‹⟨\u2329〈《«&\[|]")


def visible(text: str) -> str:
    """The text without hidden characters and without anything that looks like markup of the host or of a model.

    Lines are kept. Idempotent.
    """
    if _UNUSUAL.search(text):
        text = _HIDDEN.sub("", _LINE_END.sub("\n", _SURROGATE.sub("\ufffd", text)))
        text = _HIDDEN.sub("", _DISGUISED.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text))
    if _MARKUP.search(text):
        text = _without_special_tokens(text)
        text = _TAG.sub(lambda tag: f"({tag['slash']}{tag['name']}{(tag['rest'] or '').rstrip()})", text)
        # A tag over two lines can have been between the beginning and the end of a special token.
        text = _BRACKET.sub(_without_bracket, _without_special_tokens(text))
    return "\n".join(_HEADED.sub(_QUOTED, _SPEAKS.sub(_QUOTED, line, 1), 1) for line in text.split("\n"))


def _without_special_tokens(text: str) -> str:
    return "\n".join(map(_parenthesised, text.split("\n"))) if "|" in text else text


def _parenthesised(line: str) -> str:
    """The line with parentheses around its special tokens, nested ones too."""
    bars = list(_BAR.finditer(line))
    first = next((bar.start() for bar in bars if bar["begin"]), len(line))
    last = next((bar.start() for bar in reversed(bars) if bar["end"]), -1)

    def parenthesis(bar: re.Match[str]) -> str:
        if bar["begin"]:
            return "(" if bar.start() < last else bar[0]
        return ")" if bar.start() > first else bar[0]

    return _BAR.sub(parenthesis, line) if first < last else line


def _without_bracket(found: re.Match[str]) -> str:
    name = found["name"] or found["note"]
    if found["close"] or found["end"] == "]":
        return f"({found['slash']}{name})"
    return f"(quoted) {name}{found['end'] or ''}"


def safe_line(text: str, max_chars: int) -> str:
    """The sanitized text as one line of at most `max_chars` characters, without bullets and headings. Idempotent.

    A longer text is cut at a word and ends in `…`.
    """
    if _PLAIN.fullmatch(text):
        return cut_at_word(text, max_chars)
    lines = (_LINE_MARKS.sub("", line, 1) if _LINE_MARKS.match(line) else line for line in visible(text).split("\n"))
    # Joined lines can form a tag, and a cut can turn a longer word into the name of one.
    return cut_at_word(visible(cut_at_word(visible(" ".join(" ".join(lines).split())), max_chars)), max_chars)


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
