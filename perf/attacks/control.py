"""Attack the control topics and $SYS."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from perf.attacks import wire
from perf.attacks.attack import attack

if TYPE_CHECKING:
    from perf.attacks.scene import Client, Scene

CONTROL = "mosq:enable_control_api true\nmosq:control_loopback true\n"


def _talk(scene: Scene, clients: list[Client], topic: bytes, payload: bytes) -> None:
    scene.flood(clients, lambda i: wire.publish(topic, payload))


@attack(
    "control-requests", "10 clients send requests to list clients as fast as they can", config=CONTROL, mosquitto=False
)
def control_requests(scene: Scene) -> None:
    clients = scene.clients(
        10, lambda i: wire.connect(f"ask{i}") + wire.subscribe(1, [b"$CONTROL/mosq/broker/v1/response"])
    )
    _talk(
        scene, clients, b"$CONTROL/mosq/broker/v1", json.dumps({"commands": [{"command": "listClients"}] * 10}).encode()
    )


@attack(
    "control-big-json",
    "requests of 1 MB: deep JSON, 50,000 unknown commands, and no JSON",
    config=CONTROL,
    mosquitto=False,
)
def control_big_json(scene: Scene) -> None:
    clients = scene.clients(3, lambda i: wire.connect(f"ask{i}"))
    payloads = [
        b'{"commands":' + b"[" * 500_000,
        json.dumps({"commands": [{"command": "no"}] * 50_000}).encode(),
        b"{" * 1_000_000,
    ]
    packets = [wire.publish(b"$CONTROL/mosq/broker/v1", one) for one in payloads]
    scene.flood(clients, lambda i: packets[i % 3])


def _index(scene: Scene) -> None:
    from perf.attacks.matching import subscribe_all

    client = scene.client(wire.connect("idx"))
    subscribe_all(client, [b"i/+/%d" % i for i in range(50_000)])
    scene.kept.append(client)


@attack(
    "control-index",
    "requests to explain topics that many of 50,000 filters may match",
    config=CONTROL,
    mosquitto=False,
    prepare=_index,
)
def control_index(scene: Scene) -> None:
    clients = scene.clients(
        10, lambda i: wire.connect(f"ask{i}") + wire.subscribe(1, [b"$CONTROL/mosq/index/v1/response"])
    )
    _talk(scene, clients, b"$CONTROL/mosq/index/v1", b"i/a/77")


DYNSEC = """mosq:plugin mosquitto_dynamic_security.so
mosquitto:plugin mosquitto_dynamic_security.so
plugin_opt_config_file {dir}/dynsec.json
allow_anonymous false
"""


@attack(
    "dynsec-big-json",
    "an administrator sends commands of 1 MB that make thousands of clients and roles",
    config=DYNSEC,
    user="victim",
    victims=("ping", "publish"),
)
def dynsec_big_json(scene: Scene) -> None:
    client = scene.client(wire.connect("admin", user="victim", password="victim"))

    def chunk(i: int) -> bytes:
        commands = [
            {
                "command": "createRole",
                "rolename": f"r{i}-{k}",
                "acls": [{"acltype": "publishClientSend", "topic": f"t/{i}/{k}/#", "allow": True}],
            }
            for k in range(5000)
        ]
        return wire.publish(b"$CONTROL/dynamic-security/v1", json.dumps({"commands": commands}).encode())

    n = scene.flood([client], chunk, most=5)
    scene.note(f"{n * 5000:,} roles")
    scene.settle(client)


@attack(
    "dynsec-logins",
    "clients that dynamic security does not know log in again and again",
    config=DYNSEC,
    user="victim",
    victims=("ping", "publish"),
)
def dynsec_logins(scene: Scene) -> None:
    n = 0
    while not scene.over():
        try:
            with scene.open(timeout_s=scene.left()) as sock:
                sock.send(wire.connect(f"n{n}", user="victim", password="wrong"))
                sock.recv(4)
        except OSError:
            continue
        n += 1
    scene.note(f"{n} log-ins")


@attack(
    "sys-storm", "500 clients subscribe to $SYS/# again and again; $SYS changes every second", config="sys_interval 1\n"
)
def sys_storm(scene: Scene) -> None:
    clients = scene.clients(500, lambda i: wire.connect(f"sys{i}"))
    scene.flood(clients, lambda i: wire.subscribe(1, [b"$SYS/#"]))
