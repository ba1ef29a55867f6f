"""Play some random sessions on mosq and on Debian's Mosquitto; show that a difference is found, made shorter and reported."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.differential import rules
from tests.differential.__main__ import DEBIANS, main
from tests.differential.heard import Names, named, ordered
from tests.differential.pair import configs_of, steps_of
from tests.differential.rules import RULES, Difference, rule_of
from tests.differential.side import acknowledged
from tests.differential.steps import PREFIX, with_prefix
from tests.harness.broker import ROOT, command
from tests.harness.packets import Connect, Publish, Puback, Pubrec, Pubrel, Subscribe
from tests.harness.properties import P

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("config", configs_of("2.0"))
def test_random_sessions_have_no_unexplained_difference(config: str, tmp_path) -> None:
    arguments = ["--seed", "1", "--sessions", "10", "--seconds", "1000", "--config", config, "--dir", str(tmp_path)]
    assert main(arguments) == 0, "\n".join(path.read_text() for path in tmp_path.glob("*.txt"))


def test_a_difference_is_found_made_shorter_and_kept(tmp_path, capsys) -> None:
    """mosq itself takes the place of Mosquitto; the other side does not allow retained messages."""
    one = f"{shutil.which('env')} {' '.join(command())}"
    liar = tmp_path / "mosquitto"
    liar.write_text(f"#!/bin/sh\n[ \"$1\" = -h ] && echo 'mosquitto version 2.1.0' && exit\necho 'max_qos 1' >> \"$2\"\nexec {one} \"$@\"\n")
    liar.chmod(0o755)
    assert main(["--seed", "1", "--sessions", "12", "--seconds", "1000", "--config", "plain", "--mosquitto", str(liar),
                 "--broker", one, "--dir", str(tmp_path / "found")]) == 1
    assert "Connack 0x00, other props" in capsys.readouterr().out
    [found, *_] = sorted((tmp_path / "found").glob("*.json"))
    assert [step[0] for step in json.loads(found.read_text())["steps"]] == ["open"]
    text = found.with_suffix(".txt").read_text()
    assert "<- mosq " in text and "<- Mosquitto " in text and "-> CONNECT" in text
    assert main(["--play", str(found), "--mosquitto", str(liar), "--broker", one]) == 1
    assert main(["--play", str(found), "--mosquitto", DEBIANS]) == 0


def test_each_rule_names_its_row_in_the_documentation() -> None:
    text = (ROOT / "docs/differences.md").read_text()
    for row in (rules.TAKE_OVER, *(rule.row for rule in RULES)):
        assert f"| {row} |" in text, row


def test_a_seed_gives_the_same_steps() -> None:
    assert steps_of(7, "plain") == steps_of(7, "plain") != steps_of(8, "plain")


def test_a_play_has_its_own_prefix() -> None:
    packet = Publish(PREFIX + "a").encode(4).hex()
    step = with_prefix(("open", 1, 4, PREFIX + "a", packet), 12)
    assert step == ("open", 1, 4, "s0000012/a", Publish("s0000012/a").encode(4).hex())


def test_what_a_broker_may_choose_is_not_compared() -> None:
    ours = [Publish("a", b"1", 1, 7), Publish("a", b"1", 0), Publish("b", b"2", 1, 8, props=((P.TOPIC_ALIAS, 1), (P.EXPIRY, 49)))]
    theirs = [Publish("a", b"1", 0), Publish("a", b"1", 1, 1), Publish("b", b"2", 1, 2, props=((P.EXPIRY, 50),))]
    sides = [[one.key for one in named(ordered([(packet, b"") for packet in side]), Names())] for side in (ours, theirs)]
    assert sides[0] == sides[1]
    swapped = named(ordered([(packet, b"") for packet in (theirs[2], theirs[0], theirs[1])]), Names())
    assert [one.key for one in swapped] != sides[1]


def test_a_message_is_acknowledged_as_the_step_asks() -> None:
    assert acknowledged(Publish("a", b"", 1, 3), "a", 5) == Puback(3).encode(5)
    assert acknowledged(Publish("a", b"", 2, 3), "e", 5) == Pubrec(3, 0x80).encode(5)
    assert acknowledged(Pubrec(3), "d", 4) == Pubrel(3).encode(4) * 2


def test_a_rule_explains_only_its_own_difference() -> None:
    packet = Subscribe(1, (("a/+/#", 0),)).encode(4)
    steps = [("open", 0, 4, "a", Connect("a").encode(4).hex()), ("send", 0, packet.hex())]
    extra = named([(Publish("a/b", b"x", retain=True), b"")], Names())
    rule = rule_of(Difference("2.1", "plain", steps, {0: extra}, {0: []}))
    assert rule is not None and rule.explains is rules.plus_before_hash
    assert rule_of(Difference("2.1", "plain", steps, {0: []}, {0: extra})) is None
    assert rule_of(Difference("2.1", "plain", steps, {0: named([(Publish("a/b", b"x"), b"")], Names())}, {0: []})) is None
