"""Test `mosq top --once` and `--json` with a broker, and each error at the start."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import mosq
from mosq.cli.commands import main
from mosq.tools.top import command, once
from tests.ctl.answering import Answering
from tests.harness.broker import free_port
from tests.harness.packets import Connack, Connect, Suback, Subscribe
from tests.harness.wire import Wire
from tests.top.scene import HOT, WAIT_S, Model, client

Output = pytest.CaptureFixture[str]
# a broker refuses control characters in client ids; the model of tests/top/scene.py does not
HOSTILE = ("[red]x[/red]", "e\u0301", "\u05d0\u05d1", "宽宽", "\u202eevil")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(command, "RATE_S", 0.001)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def connected(stack: ExitStack, port: int, name: str, filters: int = 0) -> None:
    wire = Wire(port, 5)
    stack.callback(wire.close)
    wire.send(Connect(name))
    assert isinstance(wire.read_packet(), Connack)
    if filters:
        wire.send(Subscribe(1, tuple((f"f/{n}", 0) for n in range(filters))))
        assert isinstance(wire.read_packet(), Suback)


def top(port: int, *options: str) -> int:
    return main(["top", "-h", "127.0.0.1", "-p", str(port), *options])


def test_one_table_as_text(stack: ExitStack, capsys: Output) -> None:
    broker = stack.enter_context(mosq.Broker(enable_control_api=True))
    for n, name in enumerate(HOSTILE):
        connected(stack, broker.port, name, n + 1)
    assert top(broker.port, "--once", "--sort", "subs") == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0].startswith(f"mosq 0.2.0 at mqtt://127.0.0.1:{broker.port}  up ")
    assert lines[1].startswith("Clients 6 connected, 6 sessions  Subs 15  ")
    assert lines[5].split()[:4] == ["CLIENT", "USER", "ADDRESS", "MQTT"]
    assert [line.split()[0] for line in lines[6:11]] == ["\\u202eevil", "宽宽", "\\u05d0\\u05d1", "e\\u0301", "[red]x[/red]"]
    assert all(line.isprintable() for line in lines)


def test_the_limit_and_the_filter(stack: ExitStack, capsys: Output) -> None:
    broker = stack.enter_context(mosq.Broker(enable_control_api=True))
    for name in ("ay", "az", "z"):
        connected(stack, broker.port, name)
    assert top(broker.port, "--once", "--limit", "1", "--sort", "client", "--prefix", "a") == 0
    assert capsys.readouterr().out.splitlines()[-2:][1] == "... 1 more"
    assert top(broker.port, "--json", "--filter", "Z", "--sort", "client", "--limit", "1") == 0
    tree = json.loads(capsys.readouterr().out)
    assert (tree["matching"], [row["clientid"] for row in tree["clients"]], tree["complete"]) == (2, ["az"], True)
    assert tree["rates"]["in"] > 0
    assert tree["stats"]["process"].keys() == {"uptime", "cpuSeconds", "residentBytes"}


def test_hot_tables(stack: ExitStack, capsys: Output) -> None:
    there = stack.enter_context(Answering(Model([client("c00007")], HOT)))
    for view in ("topics", "prefixes", "publishers", "receivers", "slow"):
        assert top(there.port, "--json", "--view", view) == 0
        assert json.loads(capsys.readouterr().out)[view] == HOT[view]
    assert top(there.port, "--once", "--view", "topics") == 0
    assert "\n[bold]\\x1b[2J " in capsys.readouterr().out
    assert top(there.port, "--once") == 0
    [row] = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("c00007")]
    assert "77" in row


@pytest.mark.parametrize(("hot", "why"), [
    (None, "This broker does not know the command `hot`"), ({"sampled": 0, "hint": "Set sketch_messages."}, "Set sketch_messages."),
])
def test_a_broker_without_hot_topics(stack: ExitStack, capsys: Output, hot: dict[str, object] | None, why: str) -> None:
    there = stack.enter_context(Answering(Model([client("a")], hot)))
    assert top(there.port, "--once", "--view", "topics") == 1
    assert why in capsys.readouterr().err
    assert top(there.port, "--once") == 0


def test_slow_clients_need_no_samples(stack: ExitStack, capsys: Output) -> None:
    there = stack.enter_context(Answering(Model([client("a")], {"sampled": 0, "hint": "Set it.", "slow": HOT["slow"]})))
    assert top(there.port, "--json", "--view", "slow") == 0
    assert json.loads(capsys.readouterr().out)["slow"] == HOT["slow"]


def test_the_hot_tables_of_a_broker(stack: ExitStack, capsys: Output) -> None:
    broker = stack.enter_context(mosq.Broker(enable_control_api=True, observe_messages=1))
    connected(stack, broker.port, "reader", 1)
    give_up = time.monotonic() + WAIT_S
    for view, name in (("topics", "f/0"), ("prefixes", "f"), ("receivers", "reader")):
        found: list[str] = []
        while name not in found:            # the broker forgets messages after a while, and answers again after 2 s
            assert time.monotonic() < give_up, found
            for _ in range(50):
                broker.publish("f/0", b"x" * 100, qos=1)
            top(broker.port, "--once", "--view", view)
            found = [line.split(" ")[0] for line in capsys.readouterr().out.splitlines()]


def test_ten_thousand_clients(stack: ExitStack, capsys: Output) -> None:
    model = Model([client(f"c{n:05}", queued=n) for n in range(10_000)])
    there = stack.enter_context(Answering(model))
    assert top(there.port, "--json", "--limit", "3", "--sort", "queue") == 0
    tree = json.loads(capsys.readouterr().out)
    assert (tree["matching"], [row["clientid"] for row in tree["clients"]]) == (10_000, ["c09999", "c09998", "c09997"])
    assert model.asked == ["getStats", "getStats", *["listClients"] * 20, "hot"]


@pytest.mark.parametrize("answer", [{}, {"data": []}, {"data": {"clients": 1, "cursor": 0}}, {"data": {"clients": [{}], "cursor": 0}}])
def test_an_answer_of_another_form(stack: ExitStack, capsys: Output, answer: dict[str, object]) -> None:
    model = Model([])
    there = stack.enter_context(Answering(lambda command: answer if command["command"] == "listClients" else model(command)))
    assert top(there.port, "--once") == 1
    assert capsys.readouterr().err.startswith("Error: The broker's answer to listClients ")


# ---------------------------------------------------------------- errors

def test_a_user_without_the_right(stack: ExitStack, capsys: Output, tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite #\nuser ann\ntopic readwrite $CONTROL/mosq/broker/#\n")
    broker = stack.enter_context(mosq.Broker(enable_control_api=True, acl_file=str(acl), allow_anonymous=True))
    assert top(broker.port, "--once", "-u", "ann", "-P", "x") == 0
    capsys.readouterr()
    assert top(broker.port, "--once", "-u", "ben", "-P", "x") == 1
    err = capsys.readouterr().err
    assert "Not authorized" in err
    assert "`topic readwrite $CONTROL/mosq/#`" in err


def test_a_broker_without_the_control_api(stack: ExitStack, capsys: Output) -> None:
    broker = stack.enter_context(mosq.Broker())
    assert top(broker.port, "--once") == 1
    assert "this needs mosq with `enable_control_api true`" in capsys.readouterr().err


def test_no_broker_at_the_address(capsys: Output) -> None:
    assert top(free_port(), "--once") == 1
    assert "Is there a broker at 127.0.0.1 port" in capsys.readouterr().err


def test_no_terminal(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert top(1) == 1
    assert "`mosq top --once` prints one table" in capsys.readouterr().err


def test_textual_is_missing(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(command, "_has_textual", lambda: False)
    assert top(1) == 1
    err = capsys.readouterr().err
    assert "needs textual" in err
    assert "pip install 'textual" in err


@pytest.mark.parametrize("options", [("--once", "--json"), ("--once", "--sort", "nope"), ("-n", "0"), ("--limit", "0"), ("--view", "x")])
def test_errors_in_the_command_line(capsys: Output, options: tuple[str, ...]) -> None:
    assert top(1, *options) == 3
    assert capsys.readouterr().err


def test_nothing_of_once_needs_textual() -> None:
    assert "textual" not in vars(once)
