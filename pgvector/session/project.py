"""The name of the project of a working folder, from the files of its git repository. Runs no program."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import islice
from pathlib import Path

NAME_FILE = ".hermes-memory-project"
"""The file in a checkout whose first line names the project."""
FOLDERS_MAX = 40
FILE_BYTES_MAX = 4096


def project_of(folder: Path | None) -> str:
    """The project of a folder; empty when it is in none, or cannot be read.

    It is the first line of NAME_FILE in the folder or the nearest one above it, up to the root of the checkout, else
    the name of the repository: of the folder that holds its `.git`, which all work trees of a repository share.
    """
    if folder is None:
        return ""
    for place in islice((folder, *folder.parents), FOLDERS_MAX):
        if name := _first_line(place / NAME_FILE).strip():
            return name
        if common := _common_directory(place / ".git"):
            return common.parent.name if common.name == ".git" else common.name.removesuffix(".git")
    return ""


def checkout_of(folder: Path) -> Path | None:
    """The root of the checkout that a folder is in; None when it is in none."""
    places = islice((folder, *folder.parents), FOLDERS_MAX)
    return next((place for place in places if _common_directory(place / ".git")), None)


def _common_directory(git: Path) -> Path | None:
    """The directory that the work trees of a repository share; None when `git` is not the `.git` of a checkout.

    In a work tree or a submodule, `.git` is a file that names the directory.
    """
    # RuntimeError: a loop of links, until Python 3.12.
    with suppress(OSError, ValueError, RuntimeError):
        if git.is_dir():
            # An empty folder of this name is no repository.
            return git.resolve() if (git / "HEAD").exists() else None
        link = re.match(r"gitdir:\s*(\S.*)", _first_line(git))
        if link:
            own = (git.parent / link[1].strip()).resolve()
            common = _first_line(own / "commondir").strip()
            found = (own / common).resolve() if common else own
            # What is still a link is part of a loop of links.
            return None if found.is_symlink() else found
    return None


def _first_line(path: Path) -> str:
    with suppress(OSError, ValueError):
        # Not a pipe, which would block.
        if path.is_file():
            with path.open("rb") as file:
                return file.read(FILE_BYTES_MAX).decode("utf-8", "replace").partition("\n")[0]
    return ""
