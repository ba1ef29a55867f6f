"""Test the suite of attacks: its table, its verdicts, and one attack that runs against a real broker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perf.attacks import every, wire
from perf.attacks.__main__ import BROKERS, main
from perf.attacks.attack import MEMORY_LIMIT, attack
from perf.attacks.run import Result, _judge
from tests.harness.broker import ROOT
from tests.harness.packets import Connack, Connect, Publish, Subscribe, Unsubscribe, decode

FINDINGS = {"1", "2", "3", "4", "5", "6", "7", "8", "9"}    # 10 needs no flood: tests/net/test_tls.py


def judged(name: str, limit_s: float = 5.0, **measured: object) -> Result:
    result = Result(name, "mosq", **measured)     # type: ignore[arg-type]
    _judge(every.ATTACKS[name], result, limit_s)
    return result


def test_each_finding_has_an_attack_and_each_attack_a_sentence() -> None:
    assert {one.finding for one in every.ATTACKS.values()} >= FINDINGS | {"low", "class"}
    assert all(re.fullmatch(r"[a-z0-9-]+", one.name) and len(one.what) > 20 for one in every.ATTACKS.values())


def test_a_long_wait_fails_and_a_short_one_meets_the_goal() -> None:
    assert judged("guesses", waits={"ping": (68.0, 1.0, 3)}).failures == ["ping waited 68.0 s"]
    late = judged("guesses", waits={"ping": (0.15, 0.001, 3)})
    assert not late.failures and not late.goal
    assert judged("guesses", waits={"ping": (0.09, 0.001, 3)}).goal
    assert judged("handshakes", waits={"ping": (0.15, 0.001, 3)}).goal, "victims with TLS have twice the time"


def test_memory_above_the_limit_and_breaches_fail() -> None:
    waits = {"ping": (0.001, 0.001, 3)}
    assert not judged("guesses", waits=waits, rss_peak=int(MEMORY_LIMIT * 1.19)).failures
    assert judged("guesses", waits=waits, rss_peak=int(MEMORY_LIMIT * 1.3)).failures == ["RSS 1.30 x memory_limit"]
    assert not judged("guesses", waits=waits, failures=["breach: x"]).goal


def test_the_name_of_an_attack_is_used_once() -> None:
    with pytest.raises(AssertionError):
        attack("guesses", "the same name again")(lambda scene: None)


@pytest.mark.parametrize("level", [4, 5])
def test_the_fast_encoder_agrees_with_the_packets_of_the_tests(level: int) -> None:
    props = b"" if level == 5 else None
    assert wire.publish(b"a/b", b"x" * 200, qos=1, mid=7, retain=True, props=props) == Publish("a/b", b"x" * 200, 1, 7, True).encode(level)
    assert wire.subscribe(3, [b"a", b"b/#"], 1, level=level) == Subscribe(3, (("a", 1), ("b/#", 1))).encode(level)
    assert wire.unsubscribe(3, [b"a"], level=level) == Unsubscribe(3, ("a",)).encode(level)
    assert wire.connect("c", level=level) == Connect("c", keepalive=0).encode(level)
    assert decode(4, b"\x20\x02\0\0") == Connack()


def test_unknown_names_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="no attack has 'nothing' in its name"):
        main(["--only", "nothing"])
    assert main(["--list", "--only", "guesses"]) == 0
    assert capsys.readouterr().out.startswith("guesses ")


def test_an_attack_on_mosq_is_measured_and_saved(tmp_path: Path) -> None:
    """The limit is 60 s, because this test checks the measurement and not the speed."""
    done = subprocess.run(
        [sys.executable, "-m", "perf.attacks", "--only", "tiny-packets", "--broker", BROKERS[0], "--seconds", "0.2", "--limit", "60",
         "--dir", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [result] = json.loads((tmp_path / "attacks.json").read_text())["results"]
    assert set(result["waits"]) == {"ping", "publish", "login"}
    assert all(number > 0 for _, _, number in result["waits"].values())
    assert result["rss_peak"] >= result["rss_before"] > 1_000_000 and result["descriptors"] > 8 and not result["failures"]
    assert "| tiny-packets | class | mosq |" in (tmp_path / "attacks.md").read_text()
