"""Test `mosq ctl retained`: filters, binary payloads, bounded lists, removal, and refusals."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from mosq.cli.commands import main
from tests.harness.broker import ROOT, Broker

BINARY = bytes(range(256))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker("") as running:
        yield running


def at(broker: Broker) -> list[str]:
    return ["-h", "127.0.0.1", "-p", str(broker.port)]


def put(broker: Broker, topic: str, payload: bytes) -> None:
    done = subprocess.run([sys.executable, "-m", "mosq", "pub", *at(broker), "-t", topic, "-r", "-q", "1", *(("-s",) if payload else ("-n",))], cwd=ROOT,
                          input=payload, check=True)
    assert done.returncode == 0


def retained(broker: Broker, *words: str) -> int:
    return main(["ctl", *at(broker), "retained", *words, "--wait", "0.5"])


def test_the_help_of_ctl_names_the_command_without_its_imports() -> None:
    code = "import sys; from mosq.cli.commands import main; sys.exit(main(['ctl', '--help']) or 'paho.mqtt.client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert "List, print and remove retained messages; any broker." in done.stdout


def test_a_list_has_each_topic_with_its_size(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    put(broker, "ls/a", b"x" * 100)
    put(broker, "ls/b", b"\x1b[2J\xff")
    put(broker, "other", b"1")
    assert retained(broker, "ls", "ls/#") == 0
    assert sorted(capsys.readouterr().out.splitlines()) == ["        5  ls/b  \\x1b[2J\\xff", f"      100  ls/a  {'x' * 60}..."]
    assert retained(broker, "ls", "ls/#", "--count", "1") == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert "There are more" in err


def test_a_payload_is_printed_byte_by_byte(broker: Broker, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    put(broker, "get/a", BINARY)
    assert retained(broker, "get", "get/a") == 0
    assert capfdbinary.readouterr().out == BINARY
    assert retained(broker, "get", "get/none") == 1
    assert b"no retained message for get/none" in capfdbinary.readouterr().err


def test_messages_are_removed(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("1", "2", "kept/3"):
        put(broker, f"rm/{name}", b"x")
    assert retained(broker, "rm", "rm/+", "--yes") == 0
    assert "2 retained messages removed." in capsys.readouterr().out
    assert retained(broker, "ls", "rm/#") == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["rm/kept/3"]


def test_messages_that_may_not_be_removed_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    config = "listener {port} 127.0.0.1\nallow_anonymous true\nacl_file {dir}/acl\n"
    with Broker(config, {"acl": "topic read #\ntopic write open/#\nuser ann\ntopic readwrite #\n"}) as closed:
        for topic in ("open/1", "closed/1", "closed/2"):
            assert main(["pub", *at(closed), "-u", "ann", "-t", topic, "-r", "-q", "1", "-m", "x"]) == 0
        assert retained(closed, "rm", "#", "--yes") == 1
        out, err = capsys.readouterr()
        assert (out, err) == ("", "Error: The broker has refused to remove 2 of 3 messages. Check the rights of the user.\n")
        assert retained(closed, "ls") == 0
        assert sorted(line.split()[1] for line in capsys.readouterr().out.splitlines()) == ["closed/1", "closed/2"]


@pytest.mark.parametrize("words", [("ls", "a#"), ("get", "a/#"), ("rm", "#/a", "--yes"), ("rm",), ("ls", "a\udcff")], ids=str)
def test_wrong_filters_are_refused(broker: Broker, words: tuple[str, ...]) -> None:
    assert retained(broker, *words) == 3


def test_a_broker_that_refuses_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker("listener {port} 127.0.0.1\nallow_anonymous false\n") as closed:
        assert retained(closed, "ls") == 1
    assert "Not authorized" in capsys.readouterr().err
    assert main(["ctl", "-h", "127.0.0.1", "-p", "1", "retained", "ls"]) == 1
