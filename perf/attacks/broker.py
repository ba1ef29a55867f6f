"""Start the broker of one attack, mosq or Debian's Mosquitto, and read what it uses from /proc."""

from __future__ import annotations

import base64
import contextlib
import glob
import hashlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mosq.tools.bench.started import free_port
from mosq.tools.tied import tied

if TYPE_CHECKING:
    from collections.abc import Callable

    from perf.attacks.attack import Attack

ROOT = Path(__file__).parents[2]
START_S, STOP_S = 60.0, 20.0
ITERATIONS = 101  # of the hash of the only password; as mosquitto_passwd
PLUGIN = "/usr/lib/*/mosquitto_dynamic_security.so"
LISTENER = {
    "tls": "certfile {certs}/broker.crt\nkeyfile {certs}/broker.key\n",
    "ws": "protocol websockets\n",
    "http": "protocol http_api\nhttp_dir {dir}/www\n",
    "proxy": "enable_proxy_protocol 2\n",
}


def mosquitto() -> str | None:
    """Return the path of Mosquitto, or None if it is not installed."""
    return shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def version_of(name: str) -> str:
    if name == "mosq":
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return f"mosq {done.stdout.strip()}".strip()
    done = subprocess.run([mosquitto() or name, "-h"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0].replace("version ", "") or "mosquitto"


def certificates(folder: Path) -> None:
    """Make a key of RSA 2048, the most common and the slowest for the broker, and a certificate for localhost."""
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-keyout",
            str(folder / "broker.key"),
            "-out",
            str(folder / "broker.crt"),
        ],
        check=True,
        capture_output=True,
    )


def write_files(folder: Path) -> None:
    """Write the files that configurations of attacks name. The user `victim` has its name as password."""
    salt = os.urandom(12)
    digest = base64.b64encode(hashlib.pbkdf2_hmac("sha512", b"victim", salt, ITERATIONS)).decode()
    text = base64.b64encode(salt).decode()
    (folder / "passwd").write_text(f"victim:$7${ITERATIONS}${text}${digest}\n")
    (folder / "acl").write_text("topic readwrite victim/#\npattern readwrite %c/#\n")
    (folder / "acl-share").write_text("topic readwrite #\nuser reader\ntopic read #\nuser none\ntopic read other\n")
    acls = [
        {"acltype": kind, "topic": topic, "allow": True}
        for topic in ("#", "$CONTROL/#")
        for kind in ("publishClientSend", "publishClientReceive", "subscribePattern")
    ]
    (folder / "dynsec.json").write_text(
        json.dumps(
            {
                "clients": [
                    {
                        "username": "victim",
                        "password": digest,
                        "salt": text,
                        "iterations": ITERATIONS,
                        "roles": [{"rolename": "all"}],
                    }
                ],
                "roles": [{"rolename": "all", "acls": acls}],
            }
        )
    )
    (folder / "www").mkdir()
    for one in (folder, *folder.iterdir()):
        one.chmod(0o700)


class Broker:
    """Run one broker with the configuration of an attack, for the block."""

    def __init__(self, name: str, attack: Attack, certs: Path) -> None:
        self.name, self.attack, self.certs = name, attack, certs
        self.ports: dict[str, int] = {}

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="mosq-attack-"))
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _config(self) -> str:
        kinds = ("tcp", *self.attack.listeners)
        while len(set(self.ports.values())) < len(kinds) + 1:
            self.ports = {kind: free_port() for kind in (*kinds, "second")}
        lines = "user root\n" if os.geteuid() == 0 else ""
        lines += f"allow_anonymous true\nmemory_limit {self.attack.memory_limit}\nsys_interval 10\n"
        own = self.attack.config
        for option in ("allow_anonymous", "sys_interval"):
            if option in own:
                lines = "".join(line for line in lines.splitlines(True) if not line.startswith(option))
        if self.name == "mosquitto":
            own = own.replace("mosquitto_dynamic_security.so", next(iter(glob.glob(PLUGIN)), PLUGIN))
            own = "".join(
                line.removeprefix("mosquitto:") for line in own.splitlines(True) if not line.startswith("mosq:")
            )
        else:
            own = "".join(
                line.removeprefix("mosq:") for line in own.splitlines(True) if not line.startswith("mosquitto:")
            )
        before, _, after = own.partition("[listeners]\n")
        for kind in kinds:
            lines += f"listener {self.ports[kind]} 127.0.0.1\n" + (LISTENER[kind] if kind != "tcp" else "")
        text = before + lines + after
        for key, value in (
            ("{port}", self.ports["tcp"]),
            ("{second}", self.ports["second"]),
            ("{dir}", self.folder),
            ("{certs}", self.certs),
        ):
            text = text.replace(key, str(value))
        return text

    def _start(self) -> None:
        write_files(self.folder)
        config = self.folder / "broker.conf"
        config.write_text(self._config())
        command = [sys.executable, "-m", "mosq"] if self.name == "mosq" else [mosquitto() or "mosquitto"]
        self.log = self.folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                tied([*command, "-c", str(config)]),
                cwd=self.folder,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                preexec_fn=self._limit(),
            )
        self.pid = self.process.pid
        end = time.monotonic() + START_S
        for kind in ("tcp", *self.attack.listeners):
            while True:
                try:
                    socket.create_connection(("127.0.0.1", self.ports[kind]), 1).close()
                    break
                except OSError:
                    if self.process.poll() is not None or time.monotonic() > end:
                        raise RuntimeError(f"{self.name} did not start: {self.last_line()}") from None
                    time.sleep(0.01)

    def _limit(self) -> Callable[[], None] | None:
        n = self.attack.descriptors
        return (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))) if n else None

    def last_line(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "it wrote nothing"

    def status(self) -> dict[str, int]:
        """Return VmRSS and VmHWM in bytes; empty if the broker has ended."""
        with contextlib.suppress(OSError, ValueError):
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
            return {
                k: int(v.split()[0]) * 1024
                for k, _, v in (line.partition(":") for line in lines)
                if k in ("VmRSS", "VmHWM")
            }
        return {}

    def descriptors(self) -> int:
        with contextlib.suppress(OSError):
            return len(os.listdir(f"/proc/{self.pid}/fd"))
        return 0

    def cpu_s(self) -> float:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def ended(self) -> str:
        """Return how the broker ended by itself; "" while it runs."""
        status = self.process.poll()
        if status is None:
            return ""
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"{how}: {self.last_line()}"

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "process"):
            for stop in (self.process.terminate, self.process.kill):
                with contextlib.suppress(ProcessLookupError):
                    stop()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(STOP_S)
                    break
        shutil.rmtree(self.folder, ignore_errors=True)
