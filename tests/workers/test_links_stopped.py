"""Test what clients notice of a worker that is stopped (SIGSTOP), and of a link that ends while both workers run."""

from __future__ import annotations

import signal
import time

import pytest

from tests.harness.packets import Puback, Publish, Pubcomp, Pubrec, Pubrel, Suback, Subscribe, Unsuback, Unsubscribe
from tests.harness.wire import Wire
from tests.workers.case import Workers, until

CONFIG = "max_keepalive 0\ncluster_watchdog 60\n"
KEPT = 1 << 20          # link_memory: the smallest value
BYTES = 40_000          # of one payload


def subscribe(client: Wire, *filters: str, qos: int = 0) -> Suback:
    client.send(Subscribe(1, tuple((one, qos) for one in filters)))
    answer = client.read_packet()
    assert isinstance(answer, Suback)
    return answer


@pytest.mark.parametrize(("level", "refused", "log"), [(5, 0x97, ""), (4, 0x80, ""), (5, 0x97, "log_type all\n")])
def test_a_filter_that_a_stopped_worker_does_not_confirm_is_refused(level: int, refused: int, log: str) -> None:
    with Workers(2, f"{CONFIG}route_timeout 1\n{log}") as broker:
        client = broker.connect(broker.id_on(1), level)
        other = broker.connect(broker.id_on(2), level)
        assert subscribe(client, "known", qos=1).codes == (1,)
        broker.kill(2, signal.SIGSTOP)
        assert subscribe(client, "new/one", "known", "new/+", qos=1).codes == (refused, 1, refused)
        broker.wait_log(": not all workers have confirmed it within route_timeout", times=2)
        broker.kill(2, signal.SIGCONT)
        until(lambda: subscribe(client, "later").codes == (0,))
        other.send(Publish("new/one", b"no subscriber"))
        other.send(Publish("known", b"1"))
        client.expect_packet(Publish("known", b"1"))
        client.send(Unsubscribe(2, ("new/one",)))
        assert isinstance(client.read_packet(), Unsuback)


def test_a_client_with_5_0_is_refused_while_a_link_is_full() -> None:
    with Workers(2, CONFIG + f"link_memory {KEPT}\n") as broker:
        sender, receiver = broker.connect(broker.id_on(1)), broker.connect(broker.id_on(2))
        subscribe(receiver, "full", qos=1)
        broker.kill(2, signal.SIGSTOP)
        count = 2 * KEPT // BYTES
        for mid in range(1, count + 1):
            sender.send(Publish("full", b"%d" % mid + b"x" * BYTES, 1, mid))
        time.sleep(0.5)                 # PUBACK comes in order, so nothing shows that the broker has read them
        broker.kill(2, signal.SIGCONT)
        answers = [sender.read_packet() for _ in range(count)]
        taken = [one.mid for one in answers if isinstance(one, Puback) and one.rc == 0]
        refused = [one.mid for one in answers if isinstance(one, Puback) and one.rc == 0x97]
        assert len(taken) + len(refused) == count and refused and min(refused) > 10
        for mid in taken:
            got = receiver.read_packet()
            assert isinstance(got, Publish) and got.payload.rstrip(b"x") == b"%d" % mid
            receiver.send(Puback(got.mid))


@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_with_3_1_1_waits_while_a_link_is_full(qos: int) -> None:
    with Workers(2, CONFIG + f"link_memory {KEPT}\n") as broker:
        sender, receiver = broker.connect(broker.id_on(1), 4), broker.connect(broker.id_on(2), 4)
        subscribe(receiver, "full", qos=1)
        broker.kill(2, signal.SIGSTOP)
        count = 2 * KEPT // BYTES
        for mid in range(1, count + 1):
            sender.send(Publish("full", b"%d" % mid + b"x" * BYTES, qos, mid))
            if qos == 2:
                sender.expect_packet(Pubrec(mid))
        for mid in range(1, count + 1 if qos == 2 else 0):
            sender.send(Pubrel(mid))
        time.sleep(0.5)
        broker.kill(2, signal.SIGCONT)
        for mid in range(1, count + 1):
            sender.expect_packet(Puback(mid) if qos == 1 else Pubcomp(mid))
            got = receiver.read_packet()
            assert isinstance(got, Publish) and got.payload.rstrip(b"x") == b"%d" % mid
            receiver.send(Puback(got.mid))
        sender.send(Publish("full", b"after", 0))
        receiver.expect_packet(Publish("full", b"after", 0))


def test_a_link_whose_receiver_does_not_read_is_opened_again() -> None:
    """Copies of retained messages fill the output up to its reserve; then the link is closed."""
    with Workers(2, CONFIG) as broker:
        sender, receiver = broker.connect(broker.id_on(1)), broker.connect(broker.id_on(2))
        subscribe(receiver, "after", qos=1)
        broker.kill(2, signal.SIGSTOP)
        for i in range(200):            # half of these topics belong to the worker of the sender
            sender.send(Publish(f"kept/{i}", b"x" * 900_000, 0, retain=True))
        sender.send(Publish("after", b"1", 1, 1))
        sender.send(Publish("mine", b"", 0))
        time.sleep(0.5)
        broker.kill(2, signal.SIGCONT)
        receiver.expect_packet(Publish("after", b"1", 1, 1))
        receiver.send(Puback(1))
        sender.expect_packet(Puback(1))
        other = broker.connect(broker.id_on(2))
        subscribe(other, "kept/+")
        assert len({other.read_packet().topic for _ in range(100)}) == 100     # type: ignore[union-attr]
