"""import --from memory-file: the entries of a MEMORY.md or USER.md, wherever it is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ...errors import BadArgument, Refused
from ...files import expanded
from ...files import read as read_file
from ...mirror.entries import parse
from ...mirror.home import FILE_BYTES_MAX, entry_form
from ...model import FILES
from ...session.capture import Capture
from .rows import Rules


def read(path: str, rules: Rules) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The entries that `keep` keeps, with the time of the file. Those of a USER.md are about the user."""
    file = expanded(path)
    try:
        content = read_file(str(file), FILE_BYTES_MAX)
        text = "" if content is None else content.decode()
        at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadArgument(f"{file} cannot be read: {reason}") from None
    if content is None:
        raise Refused(f"{file} has more than {FILE_BYTES_MAX >> 20} MiB; it is no memory file")
    target = "user" if file.name.startswith(FILES["user"].removesuffix(".md")) else "memory"
    capture = Capture(rules.settings)
    form = entry_form(masks=rules.settings.mask_secrets_in_entries, chars_max=rules.settings.content_chars_max)
    for number, entry in enumerate(map(form, parse(text)), 1):
        if capture.keeps_of_file(entry):
            marks = {"origin": "file", "imported_from": file.name}
            yield number, "entry", {"content": entry, "target": target, "created_at": at.isoformat(), "metadata": marks}
