"""A folder of a home with a JSON file `<id>.json` for each record, which persons name by the beginning of its id."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from ..errors import BadArgument, Unavailable
from ..files import locked_folder

PREFIX_CHARS_MIN = 4

T = TypeVar("T")


class JsonFolder(ABC, Generic[T]):
    """The records of a folder. Safe for several threads and processes.

    For errors, `noun` is what a record is called, `list_command` is the command that lists them.
    """

    noun: ClassVar[str]
    list_command: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def ids(self) -> list[str]:
        """The ids of all records, sorted."""
        return sorted(path.stem for path in self.folder.glob("*.json"))

    @abstractmethod
    def read(self, name: str) -> T | None:
        """The record with exactly this id; None when there is none."""

    def find(self, prefix: str) -> T:
        """The record with this id, or the only one whose id begins so. Raises BadArgument."""
        ids, listed = self.ids(), f"see: hermes-pgvector {self.list_command}"
        found = [prefix] if prefix in ids else [known for known in ids if known.startswith(prefix)]
        if prefix not in ids and len(prefix) < PREFIX_CHARS_MIN:
            what = f"{prefix!r} is too short for the id of a {self.noun}"
            raise BadArgument(f"{what}; give {PREFIX_CHARS_MIN} or more characters of it; {listed}")
        if len(found) > 1:
            raise BadArgument(f"{len(found)} {self.noun}s begin with {prefix!r}; give more of the id")
        record = self.read(found[0]) if found else None
        if record is None:
            raise BadArgument(f"no {self.noun} {prefix!r}; {listed}")
        return record

    def delete(self, name: str) -> bool:
        """Delete a record; False when it does not exist. Raises Unavailable."""
        try:
            self.path(name).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise Unavailable(f"{self.path(name)} cannot be deleted: {error.strerror}") from None
        return True

    def locked(self) -> AbstractContextManager[None]:
        """Keep other commands out; agents go on adding records. Raises Unavailable while another command holds it."""
        return locked_folder(self.folder)

    def path(self, name: str) -> Path:
        """The file of the record with this id."""
        return self.folder / f"{name}.json"
