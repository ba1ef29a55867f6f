"""Start a standalone Spark cluster on this machine, from the classes of pyspark: for the demo and for tests.

pyspark has no scripts for it, but all classes. The cluster has no login: it listens on the given addresses only. The
kernel kills master and workers with this process; executors end with their worker.
"""

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError, java
from mosq.tools.tied import tied

if TYPE_CHECKING:
    from collections.abc import Sequence

START_S = 120.0
CLASSES = "org.apache.spark.deploy"
SCALA = "2.13"  # of pyspark 4.2; a worker that a class starts looks for it
JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xss512k")


class Standalone:
    """Hold a master and its workers. `addresses`: of the master and then of each worker."""

    def __init__(
        self,
        folder: Path,
        addresses: "Sequence[str]" = ("127.0.0.1",) * 3,
        memory_mb: int = 700,
        before: "Sequence[Sequence[str]] | None" = None,
    ) -> None:
        import pyspark

        self.folder, self.addresses, self.memory_mb = folder, addresses, memory_mb
        self.before = before or [()] * len(addresses)  # words before each command, such as `ip netns exec NAME`
        self.home = Path(pyspark.__file__).parent
        self.port = 7077
        self.processes: dict[int, subprocess.Popen[bytes]] = {}  # by the place in `addresses`
        self.logs: list[IO[Any]] = []
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"spark://{self.addresses[0]}:{self.port}"

    def start(self) -> str:
        """Start everything, and return the URL of the master when all workers are registered."""
        if self.addresses[0].startswith("127."):
            self.port = _free_port(self.addresses[0])
        master = ["--host", self.addresses[0], "--port", str(self.port), "--webui-port", "0"]
        self._launch(0, f"{CLASSES}.master.Master", master)
        self._wait(0, "New state: ALIVE")
        for number in range(1, len(self.addresses)):
            self.start_worker(number)
        for number in range(1, len(self.addresses)):
            self._wait(number, "Successfully registered with master")
        return self.url

    def start_worker(self, number: int) -> None:
        """Start a worker, also again after it was killed."""
        host, work = self.addresses[number], self.folder / f"worker-{number}"
        wanted = ["--cores", "1", "--memory", f"{self.memory_mb}m", "--work-dir", str(work), "--webui-port", "0"]
        self._launch(number, f"{CLASSES}.worker.Worker", ["--host", host, *wanted, self.url])

    def _launch(self, number: int, name: str, arguments: list[str]) -> None:
        log = (self.folder / f"{number}.log").open("ab")
        self.logs.append(log)
        environment = os.environ | {
            "SPARK_HOME": str(self.home),
            "SPARK_SCALA_VERSION": SCALA,
            "SPARK_LOCAL_IP": self.addresses[number],
        }
        program = [str(java.find() or "java"), "-Xmx256m", *JVM, "-cp", f"{self.home}/jars/*"]
        self.processes[number] = subprocess.Popen(
            tied([*self.before[number], *program, name, *arguments]),
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def _wait(self, number: int, text: str) -> None:
        log, until = self.folder / f"{number}.log", time.monotonic() + START_S
        while text not in log.read_text(errors="replace"):
            if self.processes[number].poll() is not None or time.monotonic() > until:
                raise MosqPipelineError(f"Spark's master or worker did not start: see {log}")
            time.sleep(0.05)

    def close(self) -> None:
        """End all processes; executors end with their worker."""
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for log in self.logs:
            log.close()

    def __enter__(self) -> "Standalone":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _free_port(address: str) -> int:
    with socket.socket() as one:
        one.bind((address, 0))
        return int(one.getsockname()[1])
