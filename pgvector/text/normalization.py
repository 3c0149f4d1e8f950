"""Unicode normalization in a time that grows linearly with the text."""

from __future__ import annotations

import re
import unicodedata

SLICE_CHARS_MAX = 1000

# Characters compose across no space. A thousand characters without a space are cut where they end.
_SLICE = re.compile(rf".{{1,{SLICE_CHARS_MAX}}}(?!\S)|.{{1,{SLICE_CHARS_MAX}}}", re.DOTALL)


def compatible(text: str) -> str:
    """The text in NFKC, slice by slice: Python sorts a run of combining marks in quadratic time."""
    if len(text) <= SLICE_CHARS_MAX or text.isascii():
        return unicodedata.normalize("NFKC", text)
    return "".join(unicodedata.normalize("NFKC", found) for found in _SLICE.findall(text))
