"""What is asked of a server before anything is made there."""

from __future__ import annotations

import pytest

from hermes_memory_pgvector.store.schema.preflight import PGVECTOR_MIN, PGVECTOR_SOUND, older


@pytest.mark.parametrize("version", ["0.8", "0.8.0", "0.8.4-beta", "0.10.0", "1.0"])
def test_a_version_that_is_new_enough_passes(version: str) -> None:
    assert not older(version, PGVECTOR_MIN)


@pytest.mark.parametrize("version", ["", "0.7.4", "0.4"])
def test_an_old_version_or_none_does_not_pass(version: str) -> None:
    assert older(version, PGVECTOR_MIN)


def test_a_new_enough_version_may_have_known_faults() -> None:
    assert older("0.8.3", PGVECTOR_SOUND)
    assert not older("0.8.10", PGVECTOR_SOUND)
