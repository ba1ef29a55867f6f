"""Measure the CPU of an access check by a plugin in C: `python -m perf.micro.bench_plugin_c [MOSQUITTO]`.

A client publishes with QoS 0 to a topic without subscribers, many messages per send. The plugin of the tests checks
each message. The table has the CPU time of the broker per message, without and with the plugin, for mosq with each
`plugin_thread`, and for a Mosquitto if its path is given. The difference of both columns is the cost of a check. It is
a small part of a message, so each figure is the least of many runs: other work on the machine only adds to a run.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.harness.broker import Broker
from tests.harness.packets import Connect, Pingreq, Publish
from tests.harness.wire import Wire

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = {"mosq own": 20_000}             # others: 200,000
RUNS = 15
BATCH = 200


def cpu_s(pid: int) -> float:
    """Return the CPU time of all threads. /proc/PID/stat counts in steps of 10 ms, which are 0.05 us of a message."""
    return sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def per_message_us(config: str, command: list[str] | None, messages: int) -> float:
    with Broker(config, command=command) as broker:
        assert broker.process is not None
        wire = Wire(broker.port, 5, timeout_s=120)
        wire.send(Connect("c"))
        wire.read_packet()
        batch = Publish("t/1", b"x" * 20).encode(5) * BATCH
        before = cpu_s(broker.process.pid)
        for _ in range(messages // BATCH):
            wire.send(batch)
        wire.send(Pingreq())
        wire.read_packet()
        used = cpu_s(broker.process.pid) - before
        wire.close()
    return used / messages * 1e6


def main(mosquitto: str | None) -> None:
    folder = Path(tempfile.mkdtemp(prefix="mosq-bench-"))
    folder.chmod(0o755)
    library = folder / "events.so"
    source = ROOT / "tests/native/sources/events.c"
    subprocess.run(["gcc", "-O2", "-fPIC", "-shared", "-o", library, source], check=True)
    head = "listener {port} 127.0.0.1\nallow_anonymous true\nlog_type error\nlog_type information\n"
    with_plugin = f"{head}plugin {library}\nplugin_opt_events acl\n"
    cases: list[tuple[str, str, list[str] | None]] = [
        ("mosq loop", f"{with_plugin}plugin_thread loop\n", None),
        ("mosq own", f"{with_plugin}plugin_thread own\n", None)]
    if mosquitto:
        cases.append(("mosquitto", with_plugin, [mosquitto]))
    print(f"{'broker':12} {'without':>10} {'with':>10} {'check':>10}   us of CPU per message, least of {RUNS} runs, "
          f"{time.strftime('%F')}")
    for name, config, command in cases:
        messages = MESSAGES.get(name, 200_000)
        runs = [[per_message_us(one, command, messages) for one in (head, config)] for _ in range(RUNS)]
        without, plugged = (min(column) for column in zip(*runs, strict=True))
        print(f"{name:12} {without:10.3f} {plugged:10.3f} {plugged - without:10.3f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
