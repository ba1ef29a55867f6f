"""Define a row of a wire table, and run it with the broker of its flavour."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.harness.broker import Brokers, is_reference
from tests.harness.certificates import client_context
from tests.harness.scene import Scene, Steps
from tests.wire.flavours import FILES, FLAVOURS

ALL = (3, 4, 5)
V34 = (3, 4)
V45 = (4, 5)
V5 = (5,)


@dataclass(frozen=True)
class Case:
    id: str
    clause: str  # '[v5 3.3.2-7]'; a case for several versions names the clause of the newest
    versions: tuple[int, ...]
    flavour: str
    steps: Steps
    timed: bool = False  # the case waits for the clock: timed cases run in parallel
    differs: str = ""  # reason why Mosquitto 2.0.11 differs
    one_process: str = ""  # reason why the case does not hold for a broker with workers


@dataclass(frozen=True)
class Play:
    case: Case
    level: int

    def run(self, brokers: Brokers) -> None:
        broker = brokers.get(FLAVOURS[self.case.flavour], FILES.get(self.case.flavour))
        config = FLAVOURS[self.case.flavour]
        tls = client_context() if "certfile" in config else None
        try:
            Scene(broker.port, self.level, "protocol websockets" in config, tls).play(self.case.steps)
        except AssertionError as error:
            raise AssertionError(f"{self.case.clause} {error}") from None
        assert broker.alive(), f"{self.case.clause} the broker died:\n{broker.log()[-2000:]}"


def plays(cases: list[Case], part: str = "", every: int = 1) -> pytest.MarkDecorator:
    """Parametrize a test with the rows of a table.

    With `part`, all rows run in this part of `make test-all`, and every `every`th case also runs in `make test`."""
    ids = [c.id for c in cases]
    assert len(ids) == len(set(ids)), f"case ids twice: {sorted(i for i in ids if ids.count(i) > 1)}"
    rows = []
    for n, c in enumerate(cases):
        marks = [pytest.mark.timing, pytest.mark.together("timed rows")] if c.timed else []       # Stage runs all of them at once
        if c.one_process:
            marks.append(pytest.mark.one_process(c.one_process))
        if part:
            marks.append(pytest.mark.part(part) if n % every else pytest.mark.again(part))
        rows += [pytest.param(Play(c, level), id=f"{c.id}-v{level}", marks=marks) for level in c.versions]
    return pytest.mark.parametrize("play", rows)


class Stage:
    """Run rows; the first timed row starts all timed rows at once."""

    def __init__(self, timed: list[Play]) -> None:
        self.brokers = Brokers()
        self._timed = timed
        self._pool = ThreadPoolExecutor(max_workers=64)
        self._futures: dict[int, Future[None]] = {}

    def __call__(self, play: Play) -> None:
        if play.case.differs and is_reference():
            try:
                self._play(play)
            except (AssertionError, RuntimeError):
                pytest.xfail(play.case.differs)
            return
        self._play(play)

    def _play(self, play: Play) -> None:
        if not play.case.timed:
            play.run(self.brokers)
            return
        if not self._futures:
            self._futures = {id(p): self._pool.submit(p.run, self.brokers) for p in self._timed}
        self._futures[id(play)].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self.brokers.close()
