"""Attack by what an operator or another broker does: reloads of large files, bridges in a loop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from perf.attacks import wire
from perf.attacks.attack import attack

if TYPE_CHECKING:
    from pathlib import Path

    from perf.attacks.scene import Scene

RULES = 100_000


def replace(path: Path, text: str) -> None:
    """Write a file so that no reload reads half of it."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


@attack(
    "reload-rules",
    "SIGHUP with 100,000 access rules while 1,000 clients with filters are connected",
    config="acl_file {dir}/acl\n",
    prepare=lambda scene: _clients(scene),
)
def reload_rules(scene: Scene) -> None:
    for n in range(2):
        rules = "".join(f"user u{i}\ntopic read a/{n}/{i}/#\n" for i in range(RULES // 2)) + "topic readwrite #\n"
        replace(scene.folder / "acl", "topic readwrite #\npattern readwrite %c/#\n" + rules)
        scene.reload()
        scene.hold()
        scene.end = time.monotonic() + 1.5


def _clients(scene: Scene) -> None:
    scene.kept += scene.clients(
        1000, lambda i: wire.connect(f"c{i}") + wire.subscribe(1, [b"c/%d/%d" % (i, k) for k in range(20)])
    )


@attack("reload-storm", "SIGHUP 50 times a second, with changed options")
def reload_storm(scene: Scene) -> None:
    config = scene.folder / "broker.conf"
    text, n = config.read_text(), 0
    while not scene.over():
        replace(config, text.replace("sys_interval 10", f"sys_interval {10 + n % 2}"))
        scene.reload()
        n += 1
        time.sleep(0.02)
    scene.note(f"{n} reloads")


LOOP = """[listeners]
connection loop
address 127.0.0.1:{port}
topic # both 0
try_private false
bridge_protocol_version mqttv311
"""


@attack("bridge-loop", "the broker bridges # in both directions to itself, without a guard against loops", config=LOOP)
def bridge_loop(scene: Scene) -> None:
    time.sleep(1)  # the bridge connects
    scene.end = time.monotonic() + scene.seconds
    client = scene.client(wire.connect("loop"))
    scene.flood([client], lambda i: wire.publish(b"loop/%d" % i, bytes(1000)), most=100)
    scene.hold()
