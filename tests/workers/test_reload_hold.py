"""Test that a client which connects after SIGHUP meets the new rules, whichever worker it belongs to, also while the parent does not run."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

from tests.harness.packets import Connack, Connect, Puback, Publish
from tests.harness.wire import Wire
from tests.workers.case import Workers, until

NOT_AUTHORIZED = 0x87
ACL = "topic readwrite {}\n"
CONFIG = "acl_file {dir}/acl\n"


def rules(broker: Workers, topic: str) -> None:
    (broker.dir / "acl").write_text(ACL.format(topic))
    broker.send_signal(signal.SIGHUP)


def asked(broker: Workers, client_id: str) -> Wire:
    wire = Wire(broker.port, 5)
    broker.opened.append(wire)
    wire.send(Connect(client_id))
    return wire


def allowed(wire: Wire, topic: str) -> bool:
    wire.send(Publish(topic, b"x", 1, 7))
    got = wire.read_packet()
    assert isinstance(got, Puback), got
    return got.rc != NOT_AUTHORIZED


def entered(wire: Wire) -> None:
    got = wire.read_packet()
    assert isinstance(got, Connack) and got.rc == 0, got


def test_a_client_right_after_the_signal_meets_the_new_rules() -> None:
    with Workers(2, CONFIG, {"acl": ACL.format("t0")}) as broker:
        ids = [broker.id_on(1), broker.id_on(2)]
        for turn in range(1, 30):
            rules(broker, f"t{turn}")
            wire = asked(broker, ids[turn % 2])
            entered(wire)
            assert allowed(wire, f"t{turn}") and not allowed(wire, f"t{turn - 1}"), turn
            wire.close()


def test_a_signal_that_the_parent_has_not_taken_holds_clients() -> None:
    with Workers(2, CONFIG + "cluster_watchdog 60\n", {"acl": ACL.format("old")}) as broker:
        assert broker.process is not None
        ids = [broker.id_on(1), broker.id_on(2)]
        before = asked(broker, broker.id_on(1))
        entered(before)
        os.kill(broker.process.pid, signal.SIGSTOP)
        until(lambda: Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")     # type: ignore[union-attr]
        rules(broker, "new")
        late = [asked(broker, one) for one in ids]
        assert allowed(before, "old")           # connected clients notice nothing
        assert select.select([wire.sock for wire in late], [], [], 0.5)[0] == []
        os.kill(broker.process.pid, signal.SIGCONT)
        for wire in late:
            entered(wire)
            assert allowed(wire, "new") and not allowed(wire, "old")


def test_a_reload_that_is_refused_lets_clients_in_under_the_old_rules() -> None:
    with Workers(2, CONFIG, {"acl": ACL.format("old")}) as broker:
        for client_id in (broker.id_on(1), broker.id_on(2)):
            broker.config.write_text(broker.config.read_text() + "no_such_option 1\n")
            broker.send_signal(signal.SIGHUP)
            wire = asked(broker, client_id)
            entered(wire)
            assert allowed(wire, "old")


def test_a_signal_during_the_start_is_for_all_workers() -> None:
    """Test SIGHUP as soon as the port is open: worker 1 starts first, and the others must not start with the rules of before."""
    with Workers(2, CONFIG + "log_type all\n", {"acl": ACL.format("old")}) as broker:      # log_type: the start is not awaited
        rules(broker, "new")
        for client_id in (broker.id_on(1), broker.id_on(2)):
            wire = asked(broker, client_id)
            entered(wire)
            assert allowed(wire, "new") and not allowed(wire, "old")
