"""The lines of an archive: a manifest, rows with a checksum each, and an end with a checksum of all. Pure.

A row is `{"kind":"turn","row":{…},"vectors":["…"],"sum":"…"}`. Its sum is that of the bytes before `,"sum"`. A file
without a manifest has plain rows, `{"kind":"turn",…}`, without checksums.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import IO, Any

from ...errors import BadArgument, Refused
from ...text.cleaning import clean

FORMAT, VERSION = "hermes-memory-pgvector", 1
# In the order in which they are stored: a mark of what was erased must not keep out what was written again since then.
KINDS = (
    "rename", "entry", "past", "fact", "scope", "turn", "delegation", "withdrawal", "tombstone", "link", "event",
    "pruned", "erasure",
)  # fmt: skip
LINE_BYTES_MAX = 64 << 20
# The fields that a row of a kind must have besides its theme. Postgres checks the others.
_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "rename": {"new": str},
    "entry": {"id": int, "home": str, "target": str, "content": str, "created_at": str, "replaces": list | None},
    "past": {"entry_id": int, "content": str, "created_at": str},
    "fact": {
        **dict.fromkeys(
            ("event_id", "kind", "target", "scope", "content", "status", "written_at", "changed_at", "session_id"), str
        ),
        **dict.fromkeys(("used_at", "successor"), str | None),
        "uses": int | None,
        "metadata": dict | None,
    },
    "scope": {"session_id": str, "opened_at": str},
    "turn": {"session_id": str, "role": str, "content": str, "ts": str},
    "delegation": dict.fromkeys(("parent_session_id", "child_session_id", "task", "result", "at"), str),
    **{kind: {"at": str} for kind in ("withdrawal", "tombstone", "pruned")},
    "link": {"person": str},
}
_SUM, _VECTORS = ',"sum":"', '","'
_UUID = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ROW = re.compile(
    r'\{"kind":"(?P<kind>\w+)","row":(?P<row>\{.*\})(?:,"vectors":\["(?P<vectors>[A-Za-z0-9+/=",]*)"\])?'
    r',"sum":"(?P<sum>[0-9a-f]{16})"\}',
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Line:
    """A row of an archive. `text` is the JSON of `row`, as it was written; `number` counts from 1."""

    number: int
    kind: str
    row: Mapping[str, Any]
    text: str
    vectors: Sequence[str] = ()

    def check(self) -> None:
        """Raise BadArgument for a row of an archive in which a field of its kind is missing, or of another type."""
        row, fields = self.row, {"theme": str, **_FIELDS.get(self.kind, {})}
        found = {name: row.get(name) for name in fields}
        # A bool is an int in Python.
        wrong = [name for name in fields if isinstance(found[name], bool) or not isinstance(found[name], fields[name])]
        if not wrong and not all(isinstance(number, int) for number in row.get("replaces") or ()):
            wrong = ["replaces"]
        if not wrong and "event_id" in fields and not _UUID.fullmatch(row["event_id"]):
            wrong = ["event_id"]
        if wrong:
            raise BadArgument(f"these fields are missing, or of another type: {', '.join(wrong)}")

    def marked(self, name: str, value: str) -> Line:
        """The row with a value in its metadata; itself when it has none."""
        if not isinstance(known := self.row.get("metadata"), Mapping):
            return self
        row = {**self.row, "metadata": {**known, name: value}}
        return replace(self, row=row, text=_json(row))


@dataclass(slots=True)
class Writer:
    """Makes the lines of an archive, and counts them."""

    counts: dict[str, int] = field(default_factory=dict)
    _digest: Any = field(default_factory=hashlib.sha256)

    def manifest(self, values: Mapping[str, Any]) -> bytes:
        """The first line."""
        return self._counted(_json({"kind": "manifest", "format": FORMAT, "version": VERSION, **values}))

    def row(self, kind: str, text: str, vectors: Sequence[str]) -> bytes:
        """The line of a row, whose JSON is given."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        joined = f',"vectors":["{_VECTORS.join(vectors)}"]' if vectors else ""
        body = f'{{"kind":"{kind}","row":{text}{joined}'
        return self._counted(f'{body}{_SUM}{_sum(body)}"}}')

    def end(self) -> bytes:
        """The last line."""
        last = {"kind": "end", "rows": sum(self.counts.values()), "sha256": self._digest.hexdigest()}
        return f"{_json(last)}\n".encode()

    def _counted(self, text: str) -> bytes:
        line = f"{text}\n".encode()
        self._digest.update(line)
        return line


class Reader:
    """Reads lines. `manifest` is empty when the rows are plain.

    Raises Refused for an archive that cannot be read, and BadArgument for what is none.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._digest, self._number, self._rows = stream, hashlib.sha256(), 0, 0
        self._first = self._read()
        self.manifest = _manifest(self._first)
        if self._first.startswith(b"PGDMP"):
            raise BadArgument("it is a dump of Postgres; one that `backup` wrote is for: hermes-pgvector restore PATH")
        if self._first.strip() and not self._first.lstrip().startswith(b"{"):
            raise BadArgument("it is no archive and no file of JSON lines; for another memory name its kind by --from")
        self.wrong: list[tuple[int, str]] = []
        """The lines that are wrong, with the reasons, of those that were read."""

    def lines(self) -> Iterator[Line]:
        """The rows; wrong lines are left out and noted in `wrong`."""
        ended = False
        for raw in chain(() if self.manifest else (self._first,), iter(self._read, b"")):
            if ended:
                self._note("there is more after the end of the archive")
                return
            text = raw.strip()
            if not text:
                continue
            try:
                if self.manifest and text.startswith(b'{"kind":"end"'):
                    self._check_end(raw)
                    ended = True
                    continue
                line = _line(self._number, text.decode(), plain=not self.manifest)
            except (ValueError, RecursionError, Refused) as error:
                self._note(str(error) if isinstance(error, Refused) else "it is not a row in JSON")
                continue
            self._rows += 1
            yield line
        if self.manifest and not ended:
            self._number += 1
            self._note("the archive ends before its end: it was cut off")

    def _read(self) -> bytes:
        line = self._stream.readline(LINE_BYTES_MAX + 1)
        if len(line) > LINE_BYTES_MAX:
            raise Refused(f"line {self._number + 1} has more than {LINE_BYTES_MAX >> 20} MiB; this is no archive")
        self._number += bool(line)
        if not line.startswith(b'{"kind":"end"'):
            self._digest.update(line)
        return line

    def _check_end(self, raw: bytes) -> None:
        last = json.loads(raw)
        if last.get("rows") != self._rows + len(self.wrong):
            raise Refused(f"the archive had {last.get('rows')} rows, and {self._rows + len(self.wrong)} are here")
        if last.get("sha256") != self._digest.hexdigest() and not self.wrong:
            raise Refused("the checksum of the whole archive is wrong: rows were changed, removed or reordered")

    def _note(self, reason: str) -> None:
        self.wrong.append((self._number, reason))


def _manifest(first: bytes) -> Mapping[str, Any]:
    if not first.startswith(b'{"kind":"manifest"'):
        return {}
    try:
        manifest = json.loads(first)
    except (ValueError, RecursionError):
        raise Refused("line 1 is a damaged manifest") from None
    if manifest.get("format") != FORMAT or not isinstance(manifest.get("version"), int):
        raise Refused(f"line 1 is the manifest of {str(manifest.get('format'))[:40]!r}, not of {FORMAT}")
    if manifest["version"] > VERSION:
        raise Refused(f"the archive has version {manifest['version']}, this release reads up to {VERSION}; upgrade it")
    rows = manifest.get("rows")
    right = {
        "schema": isinstance(manifest.get("schema", 0), int),
        "rows": isinstance(rows, dict) and all(isinstance(number, int) for number in rows.values()),
        "erasure_keys": isinstance(manifest.get("erasure_keys", []), list),
    }
    if wrong := [name for name in right if not right[name]]:
        raise Refused(f"line 1 is a damaged manifest: {', '.join(wrong)} missing, or of another type")
    return dict(manifest)


def _line(number: int, text: str, *, plain: bool) -> Line:
    if plain:
        row = json.loads(text)
        if not isinstance(row, dict):
            raise Refused("it is not an object in JSON")
        return Line(number, str(row.pop("kind", "")), row, "")
    found = _ROW.fullmatch(text)
    if found is None:
        raise Refused("it is not a row of an archive")
    if _sum(text[: found.start("sum") - len(_SUM)]) != found["sum"]:
        raise Refused("its checksum is wrong: it was changed")
    if found["kind"] not in KINDS:
        raise Refused(f"its kind is {clean(found['kind'])[:40]!r}; this release knows {', '.join(KINDS)}")
    vectors = tuple(found["vectors"].split(_VECTORS)) if found["vectors"] else ()
    return Line(number, found["kind"], json.loads(found["row"]), found["row"], vectors)


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
