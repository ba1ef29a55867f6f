"""Test how perf.watched compares segments, and that a watched broker is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf import watched
from tests.harness.broker import Broker, free_port


def test_a_change_is_that_of_two_segments_with_exchanged_roles() -> None:
    """The first broker costs 10 % more in any role, and both cost 2 % more while they are on."""
    one = [(1.1 * 1.02, 1.0), (1.1, 1.0)] * 2
    other = [(1.0, 1.0), (1.02, 1.0)] * 2
    assert watched.changes(one, other, 0) == pytest.approx([2.0, 2.0])
    assert watched.changes(one, other, 1) == [0.0, 0.0]
    assert watched.quartiles([0.0, 10.0]) == "+2.5 to +7.5"
    assert watched.quartiles([1.0]) == "one pair"


def test_segments_alternate_and_begin_after_the_change(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, bool]] = []
    now = [0.0]

    class Fake:
        process = type("Process", (), {"pid": 1})

        def become(self, watched: bool) -> None:
            asked.append((now[0], watched))

        def wait_for_viewer(self) -> None:
            """There is none."""

    monkeypatch.setattr(watched.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(watched, "threads_s", lambda pid: {"1": now[0] / 10, "2": now[0] / 100})
    monkeypatch.setattr(watched, "used", lambda pid: type("Used", (), {"cpu_s": now[0] / 5}))
    turns = watched.Turns(Fake(), 3, 2.0, first=True, begin_s=1.0)       # type: ignore[arg-type]
    for step in range(1, 200):
        now[0] = step / 10
        turns("pairs", {"received": step * 1000})
    assert [one[1] for one in asked] == [True, False, True] and len(turns.found) == 3
    assert [one[0] for one in asked] == pytest.approx([1.0, 4.8, 8.6], abs=0.11)
    for all_us, loop_us in turns.found:      # 10,000 messages in a second
        assert (all_us, loop_us) == pytest.approx((20.0, 10.0))


def test_the_viewer_reads_the_metrics_and_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    web, seen = free_port(), list[str]()

    def read(port: int, path: str) -> bytes:
        seen.append(path)
        if len(seen) == 3:
            raise SystemExit("enough")
        return original(port, path)

    original = watched.read
    monkeypatch.setattr(watched, "read", read)
    config = "listener {port} 127.0.0.1\nallow_anonymous true\n" + watched.WATCHED.format(web=web)
    with Broker(config), pytest.raises(SystemExit, match="enough"):
        watched.view(web)
    assert seen == ["/metrics", "/metrics", "/dashboard/api/latency"]
