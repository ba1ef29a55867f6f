"""Run two nodes of RabbitMQ (Debian's rabbitmq-server) with its MQTT plugin: sessions are durable queues."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mosq.tools.bench.started import free_port
from mosq.tools.tied import tied
from perf.cluster.started import until
from perf.lab.broker import answers

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDERS = (Path("/usr/lib/rabbitmq/bin"), Path("/usr/local/lib/rabbitmq/bin"))      # not the wrapper of the package
START_S = 90.0
CONFIG = """listeners.tcp.default = {host}:{amqp}
mqtt.listeners.tcp.default = {host}:{port}
mqtt.allow_anonymous = true
mqtt.prefetch = 1000
log.console = false
log.file.level = error
cluster_formation.peer_discovery_backend = classic_config
cluster_formation.classic_config.nodes.1 = a{mark}@localhost
cluster_formation.classic_config.nodes.2 = b{mark}@localhost
"""


class Rabbits:
    """Two nodes that run; both listen for MQTT at the same port, at addresses of their own."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.hosts = ["127.0.1.1", "127.0.1.2"]
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def processes(self) -> dict[str, int]:
        return {name: process.pid for name, process in self.running.items()}


def program() -> Path:
    """Return the folder of RabbitMQ's programs. Raises SystemExit."""
    for folder in FOLDERS:
        if (folder / "rabbitmq-server").is_file():
            return folder
    raise SystemExit("there is no rabbitmq-server here; on Debian: apt-get install rabbitmq-server")


@contextlib.contextmanager
def rabbitmq() -> Iterator[Rabbits]:
    """Run both nodes for the block."""
    folder_of_programs = program()
    with tempfile.TemporaryDirectory(prefix="mosq-rabbit-", ignore_cleanup_errors=True) as folder:
        found = Rabbits(free_port())
        epmd, mark = free_port(), str(found.port)
        # a port mapper of its own, so that it can be ended
        mapper = subprocess.Popen(tied([str(shutil.which("epmd")), "-port", str(epmd), "-address", "127.0.0.1"]))
        try:
            for name, host in zip("ab", found.hosts, strict=True):
                found.running[f"RabbitMQ {name}"] = _started(folder_of_programs, Path(folder), name, host, found.port,
                                                            epmd, mark)
            for host in found.hosts:
                until(functools.partial(answers, host, found.port, "tcp"), f"RabbitMQ at {host}", START_S)
            yield found
        finally:
            for process in found.running.values():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            mapper.kill()
            mapper.wait()


def _started(programs: Path, folder: Path, name: str, host: str, port: int, epmd: int,     # parameters: of a process
             mark: str) -> subprocess.Popen[bytes]:
    own = folder / name
    own.mkdir()
    (own / "enabled_plugins").write_text("[rabbitmq_mqtt].\n")
    (own / "rabbitmq.conf").write_text(CONFIG.format(host=host, port=port, amqp=free_port(), mark=mark))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        links = probe.getsockname()[1]
    environment = {
        "HOME": str(folder), "RABBITMQ_NODENAME": f"{name}{mark}@localhost", "RABBITMQ_MNESIA_BASE": str(own),
        "RABBITMQ_LOG_BASE": str(own), "RABBITMQ_ENABLED_PLUGINS_FILE": str(own / "enabled_plugins"),
        "RABBITMQ_CONFIG_FILE": str(own / "rabbitmq.conf"), "RABBITMQ_DIST_PORT": str(links),
        "RABBITMQ_CONF_ENV_FILE": str(own / "none"), "ERL_EPMD_PORT": str(epmd), "ERL_EPMD_ADDRESS": "127.0.0.1"}
    with (own / "output").open("wb") as output:
        return subprocess.Popen(tied([str(programs / "rabbitmq-server")]), env={**os.environ, **environment},
                                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
