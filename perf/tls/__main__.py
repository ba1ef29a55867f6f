"""Measure the cost of TLS in mosq, in mosq with `tls_compact_records`, and in another broker, in runs that take turns.

The figures are CPU per message, per full and per resumed handshake, and memory per idle client.

    python -m perf.tls                               # mosq of this checkout and /usr/sbin/mosquitto
    python -m perf.tls --mosquitto OTHER --rounds 3

Each round starts every broker again; the table shows medians of the rounds. tlsload.c describes the load. The
certificate is RSA 2048, as `openssl req` makes it and most installations have; `--certificate p256` is the kind that
costs a server least.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from perf.lock import bench_lock

HERE = Path(__file__).parent
IDLE = 1000
PAIRS, FULL, RESUMED = ["pairs", "100"], ["full", "500"], ["resumed", "500"]
# title: (load, load of Mosquitto, unit, largest promised ratio)
LOADS = {
    "100 pairs QoS 0, 10 messages of 64 bytes per write": (
        [*PAIRS, "10", "4", "64", "2"], [*PAIRS, "10", "4", "64", "2"], "us/message", 0.6),
    "100 pairs QoS 0, 1 message of 64 bytes per write": (
        [*PAIRS, "1", "4", "64", "2"], [*PAIRS, "1", "4", "64", "2"], "us/message", None),
    "full handshake, CONNECT, DISCONNECT": (FULL, FULL, "us", 1.0),
    "resumed handshake, CONNECT, DISCONNECT, against a full one of Mosquitto": (RESUMED, FULL, "us", 0.5),
    "resumed handshake against a resumed one": (RESUMED, RESUMED, "us", None),
    f"memory of an idle client ({IDLE:,} of them)": (["idle", str(IDLE)], ["idle", str(IDLE)], "KiB", 0.6),
}
KEYS = {"rsa": ["rsa:2048"], "p256": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]}
CONFIG = """\
log_dest none
user root
allow_anonymous true
set_tcp_nodelay true
listener {port} 127.0.0.1
cafile {dir}/ca.crt
certfile {dir}/s.crt
keyfile {dir}/s.key
"""


def certify(folder: Path, key: list[str], authority: bool) -> None:
    """Create s.crt and s.key, and ca.crt, its issuer: the certificate itself, or an authority."""

    def run(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    made = ["-newkey", *key, "-nodes", "-days", "2"]
    if not authority:
        run("req", "-x509", *made, "-keyout", "s.key", "-out", "s.crt", "-subj", "/CN=localhost")
        shutil.copy(folder / "s.crt", folder / "ca.crt")
        return
    run("req", "-x509", *made, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=authority")
    run("req", *made[:-2], "-keyout", "s.key", "-out", "s.csr", "-subj", "/CN=localhost")
    run("x509", "-req", "-days", "2", "-in", "s.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
        "-out", "s.crt")


class Broker:
    """Run a broker on core 0 with the certificate in a folder."""

    def __init__(self, command: str, folder: Path, extra: str = "") -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        path = folder / "m.conf"
        path.write_text(CONFIG.format(port=self.port, dir=folder) + extra)
        self.process = subprocess.Popen(
            ["taskset", "-c", "0", *shlex.split(command), "-c", str(path)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command} does not listen") from None
                time.sleep(0.01)

    def memory_kib(self) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def measure(load: Path, broker: Broker, what: list[str]) -> float:
    """Return microseconds of the broker's CPU per operation, or KiB per idle client."""
    command = ["taskset", "-c", str((os.cpu_count() or 1) - 1), str(load), str(broker.port), str(broker.process.pid),
               *what]
    if what[0] == "idle":
        # one-time allocations happen before the measurement
        subprocess.run([*command[:6], "full", "20"], check=True, capture_output=True, timeout=60)
        before = broker.memory_kib()
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as clients:
            assert clients.stdout is not None
            assert clients.stdin is not None
            found = json.loads(clients.stdout.readline())
            grown = broker.memory_kib() - before
            clients.stdin.write(b"\n")
        return grown / float(found["count"])
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)
    return float(found["cpu_ns"]) / float(found["count"]) / 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mosq", default=f"{sys.executable} -m mosq", help="command of mosq (default: this one)")
    parser.add_argument("--mosquitto", default="/usr/sbin/mosquitto", help="command of the other broker")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="run only loads whose title contains this text")
    parser.add_argument("--certificate", choices=KEYS, default="rsa", help="kind of certificate (default: rsa)")
    parser.add_argument("--authority", action="store_true", help="let an authority sign the certificate")
    args = parser.parse_args()
    kept = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        load = folder / "tlsload"
        subprocess.run(["cc", "-O2", "-Wall", "-o", str(load), str(HERE / "tlsload.c"), "-lssl", "-lcrypto"],
                       check=True)
        certify(folder, KEYS[args.certificate], args.authority)
        print("| load | mosq | mosq, compact records | Mosquitto | mosq / Mosquitto | compact / Mosquitto | "
              "of the rounds | promised, compact |")
        print("|---|---|---|---|---|---|---|---|")
        for title, (what, theirs_what, unit, promised) in LOADS.items():
            if args.only not in title:
                continue
            found: dict[str, list[float]] = {"mosq": [], "compact": [], "mosquitto": []}
            for turn in range(args.rounds):
                with bench_lock():
                    for key in ("mosq", "compact", "mosquitto")[:: 1 if turn % 2 else -1]:
                        broker = Broker(args.mosquitto if key == "mosquitto" else args.mosq, folder,
                                        "tls_compact_records true\n" if key == "compact" else "")
                        try:
                            found[key].append(measure(load, broker, theirs_what if key == "mosquitto" else what))
                        finally:
                            broker.stop()
            ours, compact, theirs = (statistics.median(found[key]) for key in ("mosq", "compact", "mosquitto"))
            each = sorted(a / b for a, b in zip(found["compact"], found["mosquitto"], strict=True))
            limit = "" if promised is None else f"at most {promised}"
            print(f"| {title} | {ours:.2f} {unit} | {compact:.2f} | {theirs:.2f} | "
                  f"{ours / theirs:.2f} | {compact / theirs:.2f} | {each[0]:.2f} to {each[-1]:.2f} | {limit} |",
                  flush=True)
            kept &= promised is None or compact / theirs <= promised
    print(f"\n{'kept' if kept else 'NOT KEPT'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
