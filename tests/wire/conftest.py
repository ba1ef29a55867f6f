"""Provide the stage of the wire tables: one broker for each flavour, for the whole session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.case import Play, Stage


@pytest.fixture(scope="session")
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    rows = [i.callspec.params.get("play") for i in request.session.items if hasattr(i, "callspec")]
    stage = Stage([row for row in rows if isinstance(row, Play) and row.case.timed])
    yield stage
    stage.close()
