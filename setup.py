"""A step of the build, which is otherwise described in pyproject.toml."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildAnew(build_py):
    """Builds from the files of this release alone. setuptools would pack all of `build/lib`, also older files."""

    def run(self) -> None:
        shutil.rmtree(Path(self.build_lib) / "hermes_memory_pgvector", ignore_errors=True)
        super().run()


setup(cmdclass={"build_py": BuildAnew})
