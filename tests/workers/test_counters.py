"""Test that the counters of streams and of logins do not fall when a worker is killed."""

from __future__ import annotations

from tests.harness.packets import Connack, Connect, Publish, Suback, Subscribe
from tests.harness.wire import Wire
from tests.http.test_attacks import hashed
from tests.workers.case import until
from tests.workers.test_streams import STORE, publish
from tests.workers.test_whole import Scene

CONFIG = STORE.replace("max_keepalive 0\n", "") + "stream all n/#\npassword_file {dir}/passwords\n"


def fail(scene: Scene, client_id: str, user: str) -> None:
    client = Wire(scene.broker.port, 5)
    client.send(Connect(client_id, username=user, password=b"wrong"))
    answer = client.read_packet()
    assert isinstance(answer, Connack) and answer.rc != 0
    client.close()


def killed(scene: Scene, number: int) -> None:
    pid = scene.broker.kill(number)
    until(lambda: scene.broker.pids().get(number, pid) not in (pid, None), scene.broker.log)
    until(lambda: scene.metrics()["mosq_worker_up", "1"] == scene.metrics()["mosq_worker_up", "2"] == 1)


def test_counters_of_streams_and_logins_go_on() -> None:
    scene = Scene(CONFIG, files={"passwords": hashed("ann", "anns", 1000)})
    try:
        names = [scene.broker.id_on(2, "wrong"), scene.broker.id_on(1, "wrong")]
        for i in range(3):
            for name in names:
                fail(scene, name, f"user{i}")
        for number, client in scene.clients.items():
            for mid in range(1, 11):
                publish(client, f"n/{number}", b"x", 1, mid)

        def figures() -> dict[str, float]:
            found = scene.metrics()
            return {"failed": found["mosq_login_failures_total",], "records": found["mosq_stream_records_total", "all"],
                    "refused": found["mosq_logins_refused_by_backoff_total",]}

        def reach(want: dict[str, float]) -> None:
            until(lambda: figures() == want, lambda: str(figures()))

        want: dict[str, float] = {"failed": 6, "records": 20, "refused": figures()["refused"]}
        reach(want)
        for number in (2, 1):
            killed(scene, number)
            assert figures() == want
            client = scene.broker.connect(scene.broker.id_on(number))
            publish(client, "n/more", b"x", 1, 1)
            fail(scene, names[2 - number], f"late{number}")
            want = {**want, "failed": want["failed"] + 1, "records": want["records"] + 1}
            reach(want)
            # the same in `$SYS`, whichever worker has the subscriber
        for number in (1, 2):
            client = scene.broker.connect(scene.broker.id_on(number))
            client.send(Subscribe(1, (("$SYS/broker/streams/all/records", 0),)))
            assert isinstance(client.read_packet(), Suback)
            until(lambda: is_message(client.read_packet(), b"22"))      # noqa: B023
    finally:
        scene.close()


def is_message(packet: object, payload: bytes) -> bool:
    return isinstance(packet, Publish) and packet.payload == payload
