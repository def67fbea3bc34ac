"""Fixtures of the machine's tests."""

import pytest

from turnhold.session import limits


@pytest.fixture
def short_tails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Much is sealed, in small parts, and the store is often behind."""
    for name, size in {
        "TAIL_KEPT_BYTES": 300,
        "TAIL_SEALED_AT_BYTES": 900,
        "TAIL_BYTES": 2_000,
        "SETTLED_KEPT_BYTES": 300,
        "SETTLED_SEALED_AT_BYTES": 600,
        "SETTLED_BYTES": 1_500,
        "SEAL_BYTES": 1_500,
        "RECORD_BESIDE_BYTES": 700,
        "ASIDE_AT_BYTES": 100,
        "ASIDE_KEPT_BYTES": 40,
        "ASIDE_SMALLEST_BYTES": 32,
        "ASIDE_LEAST_BYTES": 50,
        "QUEUED_SHARE_BYTES": 1_200,
        "QUEUED_BYTES": 2_500,
        "CONTENT_BYTES": 400,
    }.items():
        monkeypatch.setattr(limits, name, size)
