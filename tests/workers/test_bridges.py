"""Test bridges of a broker with several workers: each belongs to one of them, and serves the clients of all."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from tests.bridge.conftest import World, block
from tests.harness.packets import Connack, Connect, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from tests.harness.wire import Wire
from tests.workers.case import Workers, connections, sockets, until

STORE = "persistence true\npersistence_location {dir}/\nautosave_interval 0\n"
LOG = "log_type all\n"


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    with made.stack:
        yield made


def workers(world: World, config: str, n: int = 3) -> Workers:
    return world.stack.enter_context(Workers(n, f"max_keepalive 0\n{LOG}{config}"))


def up(broker: Workers, name: str = "b", times: int = 1) -> None:
    """Wait until the bridge has connected that many times."""
    until(lambda: broker.log().count(f"Received CONNACK on connection local.{name}") >= times, broker.log)


def bridge(port: int, *lines: str, name: str = "b", topics: tuple[str, ...] = ("# both 2",)) -> str:
    return block(port, f"local_clientid local.{name}", *lines, name=name, topics=topics)


def subscribe(client: Wire, *filters: str, qos: int = 0) -> None:
    client.send(Subscribe(1, tuple((one, qos) for one in filters)))
    assert isinstance(client.read_packet(), Suback)


def take(client: Wire) -> tuple[str, bytes]:
    got = client.read_packet()
    assert isinstance(got, Publish), got
    if got.qos:
        assert got.qos == 1
        client.send(Puback(got.mid))
    return got.topic, got.payload


def is_quiet(client: Wire) -> None:
    client.send(Pingreq())
    client.expect_packet(Pingresp())


def has_bridge(broker: Workers, far_port: int) -> dict[int, int]:
    """Return how many connections to the other broker each worker has, without those that have none."""
    # while connections end, the kernel may leave out another one
    own = {name for _, remote, name in connections() | connections() | connections() if remote == far_port}
    found = {number: len(own & sockets(pid)) for number, pid in broker.pids().items()}
    return {number: n for number, n in found.items() if n}


@pytest.mark.parametrize("kind", ["mosquitto", "mosq"])
@pytest.mark.parametrize("qos", [0, 1])
def test_clients_of_all_workers_use_the_bridge(world: World, kind: str, qos: int) -> None:
    far = world.mosquitto() if kind == "mosquitto" else world.mosq()
    broker = workers(world, bridge(far.port, topics=("up/# out 1", "down/# in 1")))
    up(broker)
    there = world.client(far, "there")
    there.subscribe("up/#", qos=qos)
    clients = [broker.connect(broker.id_on(number)) for number in (1, 2, 3)]
    for client in clients:
        subscribe(client, "down/#", qos=qos)
    for i, client in enumerate(clients):
        client.send(Publish(f"up/{i}", b"x", qos, 1 if qos else 0))
        if qos:
            assert isinstance(client.read_packet(), Puback)
        assert there.got() == (f"up/{i}", b"x")
    until(lambda: "Received SUBACK" in broker.log())
    there.publish("down/a", b"y", qos)
    for client in clients:
        assert take(client) == ("down/a", b"y")
    assert list(has_bridge(broker, far.port).values()) == [1]


def test_bridges_are_spread_by_their_local_client_ids(world: World) -> None:
    far = world.mosquitto()
    names = [f"b{i}" for i in range(16)]       # one worker has all: 1 in 14 million
    broker = workers(world, "".join(bridge(far.port, name=name, topics=(f"{name}/# out 0",)) for name in names))
    for name in names:
        up(broker, name)
    found = has_bridge(broker, far.port)
    assert sum(found.values()) == len(names) and len(found) > 1, found


@pytest.mark.parametrize("worker", [1, 2, 3])
def test_a_message_that_came_in_does_not_go_out_again(world: World, worker: int) -> None:
    """The lines go both ways for all topics. The client is at each worker in turn, so the message passes a link."""
    far = world.mosquitto()
    broker = workers(world, bridge(far.port, "try_private false", topics=("# both 1",)))
    up(broker)
    there, watch = world.client(far, "there"), world.client(far, "watch")
    watch.subscribe("#", qos=1)
    here = broker.connect(broker.id_on(worker))
    subscribe(here, "#", qos=1)
    until(lambda: "Received SUBACK" in broker.log())
    for i in range(20):                     # retained ones belong to several workers
        there.publish(f"in/{i}", b"x", 1, retain=True)
        assert watch.got() == (f"in/{i}", b"x")
    assert sorted(take(here) for _ in range(20)) == sorted((f"in/{i}", b"x") for i in range(20))
    here.send(Publish("out", b"end", 1, 7))
    found = [here.read_packet() for _ in range(2)]
    assert {type(one) for one in found} == {Puback, Publish}
    assert watch.got() == ("out", b"end")
    far.send_signal(signal.SIGTERM)         # the bridge connects again, and sends retained messages as a new subscriber gets them
    assert far.process is not None
    far.process.wait(20)
    far.start()
    up(broker, times=2)
    watch = world.client(far, "again")
    watch.subscribe("in/#", qos=1)
    here.send(Publish("in/end", b"", 1, 8))
    while (got := watch.got())[0] != "in/end":
        pytest.fail(f"{got} went back")


def test_retained_messages_of_all_workers_go_out(world: World) -> None:
    far = world.mosquitto()
    broker = workers(world, STORE + bridge(far.port, topics=("kept/# out 1",)))
    up(broker)
    for number in (1, 2, 3):
        client = broker.connect(broker.id_on(number))
        for mid in range(1, 6):
            client.send(Publish(f"kept/{number}/{mid}", b"r", 1, mid, retain=True))
            assert isinstance(client.read_packet(), Puback)
        client.close()
    there = world.client(far, "there")
    there.subscribe("kept/#", qos=1)
    want = {f"kept/{number}/{mid}" for number in (1, 2, 3) for mid in range(1, 6)}
    assert {there.got()[0] for _ in range(15)} == want
    # a bridge that a reload adds gets all of them too
    other = world.mosquitto()
    text = broker.config.read_text()
    broker.config.write_text(text + bridge(other.port, name="c", topics=("kept/# out 1",)).replace("{port}", str(broker.port)))
    broker.send_signal(signal.SIGHUP)
    up(broker, "c")
    there = world.client(other, "there")
    there.subscribe("kept/#", qos=1)
    assert {there.got()[0] for _ in range(15)} == want


def test_the_state_of_a_bridge_is_known_at_all_workers(world: World) -> None:
    far = world.mosquitto()
    broker = workers(world, bridge(far.port, "notifications true", "notifications_local_only true", "remote_clientid rc", topics=("x out 0",)))
    up(broker)
    for number in (1, 2, 3):
        client = broker.connect(broker.id_on(number))
        subscribe(client, "$SYS/broker/connection/#", qos=1)
        assert take(client) == ("$SYS/broker/connection/rc/state", b"1")
        is_quiet(client)
        client.close()
    client = broker.connect(broker.id_on(2))
    subscribe(client, "$SYS/broker/connection/#", qos=1)
    assert take(client) == ("$SYS/broker/connection/rc/state", b"1")
    far.stop()
    assert take(client) == ("$SYS/broker/connection/rc/state", b"0")
    far.start()
    assert take(client) == ("$SYS/broker/connection/rc/state", b"1")
    is_quiet(client)


def test_clients_of_all_workers_wait_for_the_first_attempt_of_a_bridge(world: World) -> None:
    """With one process, too, the first message finds the bridge, and the first state that a client sees is 1."""
    far = world.mosquitto()
    there = world.client(far, "there")
    there.subscribe("out/#")
    broker = workers(world, bridge(far.port, "local_cleansession true", "notifications true", "notifications_local_only true",
                                   "notification_topic state", topics=("out/# out 1",)))
    for _ in range(3):
        broker.stop()
        broker.start()
        clients = [Wire(broker.port, 5) for _ in range(6)]
        for i, client in enumerate(clients):
            client.send(Connect(f"c{i}"), Subscribe(1, (("state", 0),)), Publish(f"out/{i}", b"first", 1, 2))
        for client in clients:
            got = [client.read_packet() for _ in range(4)]
            assert [one.payload for one in got if isinstance(one, Publish)] == [b"1"]
            client.close()
        assert sorted(there.got()[0] for _ in clients) == [f"out/{i}" for i in range(6)]


def test_a_killed_worker_starts_its_bridge_again(world: World) -> None:
    far = world.mosquitto()
    broker = workers(world, STORE + bridge(far.port, "cleansession false", topics=("up/# out 1", "down/# in 1")))
    up(broker)
    there = world.client(far, "there")
    there.subscribe("up/#", qos=1)
    (owner,) = has_bridge(broker, far.port)
    other = next(number for number in (1, 2, 3) if number != owner)
    client = broker.connect(broker.id_on(other))
    subscribe(client, "down/#", qos=1)
    until(lambda: "Received SUBACK" in broker.log())
    for rounds in range(1, 4):
        pid = broker.kill(owner)
        client.send(Publish(f"up/{rounds}", b"x", 1, rounds))    # waits for the worker
        assert isinstance(client.read_packet(), Puback)
        while there.got() != (f"up/{rounds}", b"x"):
            pass
        until(lambda: broker.pids().get(owner, pid) != pid)     # noqa: B023
        up(broker, times=rounds + 1)
        there.publish("down/x", b"%d" % rounds, 1)
        while take(client) != ("down/x", b"%d" % rounds):
            pass
    assert has_bridge(broker, far.port) == {owner: 1}


def test_sighup_adds_changes_and_removes_bridges(world: World) -> None:
    far, other = world.mosquitto(), world.mosquitto()
    broker = workers(world, "")
    plain = broker.config.read_text()
    client = broker.connect(broker.id_on(1))
    names = [f"b{i}" for i in range(4)]

    def reload(text: str) -> None:
        broker.config.write_text(plain + text)
        broker.send_signal(signal.SIGHUP)

    reload("".join(bridge(far.port, name=name, topics=(f"{name}/# out 1",)) for name in names))
    for name in names:
        up(broker, name)
    there = world.client(far, "there")
    there.subscribe("#", qos=1)
    for mid, name in enumerate(names):
        client.send(Publish(f"{name}/1", b"x", 1, mid + 1))
        assert isinstance(client.read_packet(), Puback)
        assert there.got() == (f"{name}/1", b"x")
    reload("".join(bridge(other.port, "bridge_reload_type immediate", name=name, topics=(f"{name}/# out 1",)) for name in names[:3]))
    for name in names[:3]:
        up(broker, name, 2)
    until(lambda: not has_bridge(broker, far.port), broker.log)
    there = world.client(other, "there")
    there.subscribe("#", qos=1)
    for mid, name in enumerate(reversed(names)):
        client.send(Publish(f"{name}/2", b"x", 1, mid + 1))
        assert isinstance(client.read_packet(), Puback)
    assert sorted(there.got() for _ in range(3)) == [(f"{name}/2", b"x") for name in names[:3]]
    reload("")
    until(lambda: not has_bridge(broker, other.port), broker.log)


def test_a_bad_file_of_a_bridge_is_refused_by_all(world: World) -> None:
    far = world.mosquitto()
    broker = workers(world, bridge(far.port, topics=("a/# out 1",)))
    up(broker)
    text = broker.config.read_text()
    broker.config.write_text(text + "max_inflight_messages 7\n" + bridge(far.port, "bridge_cafile {dir}/missing", name="c").replace("{dir}", str(broker.dir)))
    broker.send_signal(signal.SIGHUP)
    broker.wait_log("The configuration was not reloaded")
    assert len(broker.pids()) == 3
    assert list(has_bridge(broker, far.port).values()) == [1]


def test_a_loop_over_bridges_of_two_workers_is_found(world: World) -> None:
    """All bridges belong to one broker, whichever workers have them. A message that comes back has left by another one."""
    far = world.mosquitto()
    lines = ("bridge_protocol_version mqttv50", "try_private false", "bridge_loop_guard true")
    topics = ("loop/# both 1",)
    while True:
        broker = workers(world, "".join(bridge(far.port, *lines, name=name, topics=topics) for name in "bcde"))
        for name in "bcde":
            up(broker, name)
        if len(has_bridge(broker, far.port)) > 1:
            break
        broker.stop()               # each broker has a random key, and one of 27 gives all four to one worker
    until(lambda: broker.log().count("Received SUBACK") >= 4)
    client = broker.connect(broker.id_on(1))
    subscribe(client, "loop/#", qos=1)
    client.send(Publish("loop/x", b"1", 1, 1))
    found = [client.read_packet() for _ in range(2)]
    assert {type(one) for one in found} == {Puback, Publish}, found
    client.send(Puback(next(one.mid for one in found if isinstance(one, Publish))))
    there = world.client(far, "there")
    there.publish("end", b"", 1)
    is_quiet(client)


def test_a_client_with_the_id_of_a_bridge_meets_it(world: World) -> None:
    """The id belongs to the bridge, as with one process: the client is refused."""
    far = world.mosquitto()
    broker = workers(world, bridge(far.port, topics=("a/# out 1",)))
    up(broker)
    client = Wire(broker.port, 5)
    client.send(Connect("local.b"))
    answer = client.read_packet()
    assert isinstance(answer, Connack) and answer.rc != 0
    client.close()


def test_a_bridge_is_in_the_list_of_each_worker(world: World) -> None:
    far = world.mosquitto()
    broker = workers(world, "enable_control_api true\ncontrol_loopback true\n" + bridge(far.port, topics=("a/# out 1",)))
    up(broker)
    found = []
    for number in (1, 2, 3):
        client = broker.connect(broker.id_on(number))
        client.send(Publish("$CONTROL/mosq/broker/v1", json.dumps({"commands": [{"command": "listBridges"}]}).encode()))
        got = client.read_packet()
        assert isinstance(got, Publish)
        found.append([one["name"] for one in json.loads(got.payload)["responses"][0]["data"]["bridges"]])
    assert found == [["b"]] * 3
