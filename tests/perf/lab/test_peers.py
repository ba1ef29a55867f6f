"""Test the table of brokers: how they are found, configured and started."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from perf.lab import broker as lab_broker
from perf.lab.broker import Broker, NotThereError
from perf.lab.peers import MOSQ, PEERS, Found, Peer, find, made, settings
from perf.lab.plan import VARIANTS_OF_MOSQ


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.family)
@pytest.mark.parametrize("durable", [False, True])
def test_each_row_renders_for_each_of_its_listeners(peer: Peer, durable: bool, tmp_path: Path) -> None:
    found = Found(peer, Path("/opt/peer/bin/program"), "1.2.3")
    for transport in peer.listener:
        one = made(found, port=4711, folder=tmp_path, transport=transport, durable=durable, cert="/c.pem", key="/k.pem")
        whole = "\n".join([one.text, *one.command, *one.environment.values()])
        assert "$" not in whole
        assert "4711" in whole
        assert "0.0.0.0" not in whole
        assert ("/c.pem" in whole) == (transport == "tls")
    assert peer.survives in settings(found)
    assert (peer.family in ("mosq", "relay")) == (found.name == peer.family)


def debian() -> Found:
    return next(one for one in find([]) if one.peer.family == "mosquitto")


@pytest.mark.interop
@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("family", ["mosq", "mosquitto"])
def test_a_broker_starts_and_stops(family: str, durable: bool) -> None:
    found = debian() if family == "mosquitto" else next(one for one in find([]) if one.peer is MOSQ)
    with Broker(found, durable=durable) as broker:
        assert lab_broker.answers(broker.host, broker.port, "tcp")
        assert broker.pid == broker.process.pid
        assert not broker.ended()
    assert broker.process.poll() is not None
    assert not Path(broker.folder.name).exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", broker.port))


def test_mosq_accepts_the_options_without_optimisations() -> None:
    """Test that `plain` has all options of the other variants."""
    found = next(one for one in find([]) if one.peer is MOSQ)
    with Broker(found, VARIANTS_OF_MOSQ["plain"].broker) as broker:
        assert not broker.ended()


@pytest.mark.interop
def test_the_process_behind_a_start_script_is_measured(program) -> None:
    folder = program("mosquitto", '/usr/sbin/mosquitto "$@"\n:')
    found = next(one for one in find([folder]) if one.version == "9.9.9")
    assert found.name == "mosquitto-9.9.9"
    with Broker(found) as broker:
        assert broker.pid != broker.process.pid
        assert Path(f"/proc/{broker.pid}/comm").read_text().strip() == "mosquitto"
        door = socket.create_connection((broker.host, broker.port))
    with door:      # the child ends with the script
        assert door.recv(1) == b""


@pytest.mark.parametrize(("does", "said"), [("echo no such option >&2; exit 3", "ended with status 3; its last line: no such option"),
                                            ("kill -9 $$", "was killed by SIGKILL")])
def test_a_broker_that_does_not_start_has_a_reason(program, does: str, said: str) -> None:
    found = next(one for one in find([program("mosquitto", does)]) if one.version == "9.9.9")
    with pytest.raises(NotThereError, match=re.escape(f"mosquitto-9.9.9 did not start: {said}")), Broker(found):
        pass


def test_a_broker_that_starts_and_does_not_listen(program, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = program("flashmq", "exec sleep 60")
    found = next(one for one in find([folder]) if one.peer.family == "flashmq" and one.version == "9.9.9")
    monkeypatch.setattr(lab_broker.time, "monotonic", iter(range(0, 1000, 5)).__next__)
    with pytest.raises(NotThereError, match=r"flashmq-9\.9\.9 does not answer after 15 s"), Broker(found):
        pass


def test_programs_are_found_in_the_usual_places_of_a_folder(program, tmp_path: Path) -> None:
    folder = program("nanomq", "", "0.25.5")
    other = folder / "vernemq" / "bin" / "vernemq"
    other.parent.mkdir(parents=True)
    other.write_text("#!/bin/sh\necho 2.0.1\n")
    other.chmod(0o755)
    (folder / "bin" / "amqtt").write_text("not to be executed")
    aedes = folder / "any" / "node_modules" / "aedes"
    aedes.mkdir(parents=True)
    (aedes / "aedes.js").touch()
    (aedes / "package.json").write_text('{"version": "1.2.0"}')
    hivemq = folder / "hivemq-ce-2024.9" / "bin" / "run.sh"
    hivemq.parent.mkdir(parents=True)
    hivemq.touch()
    hivemq.chmod(0o755)
    names = {one.name for one in find([folder])}
    assert {"mosq", "nanomq-0.25.5", "vernemq-2.0.1", "aedes-1.2.0", "hivemq-2024.9"} <= names
    assert not {name for name in names if name.startswith("amqtt-unknown")}


def test_a_release_with_fixed_paths_gets_a_folder_of_symlinks(program, tmp_path: Path) -> None:
    release = tmp_path / "vernemq"
    for name in ("bin", "etc", "lib", "data"):
        (release / name).mkdir(parents=True)
    (release / "bin" / "vernemq").write_text('#!/bin/sh\ncat "$(cd "$(dirname "$0")"; /bin/pwd)/../etc/vernemq.conf"; exit 1\n')
    (release / "bin" / "vernemq").chmod(0o755)
    peer = next(one for one in PEERS if one.family == "vernemq")
    with pytest.raises(NotThereError, match=r"its last line: log\.console = off"), Broker(Found(peer, release / "bin" / "vernemq", "1")):
        pass
    assert not list((release / "etc").iterdir())
