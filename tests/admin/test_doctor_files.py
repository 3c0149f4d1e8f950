"""What doctor says of the files of a home."""

from __future__ import annotations

from pathlib import Path

from hermes_memory_pgvector.admin.doctor.files import local_files
from hermes_memory_pgvector.files import LastingMarks
from hermes_memory_pgvector.mirror.home import Home
from hermes_memory_pgvector.settings import Settings


def test_a_home_that_can_keep_no_session_off_the_record_any_more_is_a_problem(tmp_path: Path) -> None:
    home = Home(tmp_path)

    def verdict() -> str:
        checks = {check.name: check for check in local_files(home, Settings())}
        return checks["off the record"].verdict

    assert verdict() == "ok"
    LastingMarks(home.state / "off_record", 2, "").change("ab", marked=True)
    assert verdict() == "problem"
