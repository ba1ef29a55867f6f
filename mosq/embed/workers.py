"""The running parts of `mosq.Broker(workers=N)`: a process of its own, which is the parent of the workers (apart.py), a
channel to it, and a thread that passes on its log lines. Has the methods of `Running`.

A program may have threads, and a process with threads must not fork; so the parent is not a fork of the program but a
new interpreter. The program's own connections go to a worker as descriptors, over the channel and the parent.

  start: process -> configuration over its stdin -> ready, with the ports     stop: close the channel -> wait for it
"""

import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time

import mosq.version
from mosq.config.errors import ConfigError
from mosq.embed import log
from mosq.embed.errors import BrokerStopped
from mosq.log_types import INFORMATION, LOG_ALL, LOG_TYPES
from mosq.server.workers.channel import MESSAGE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mosq.config.model import Config

COMMAND = "from mosq.embed.apart import main; main(%d)"
START_S, STOP_S, ANSWER_S = 60.0, 10.0, 10.0


class RunningWorkers:
    """The process with the workers. Holds no reference to the `Broker` that started it."""

    def __init__(self, config: "Config", source: "Any", options: "dict[str, Any]") -> None:
        """Start. Raises ConfigError, and OSError for a port or a store that cannot be used."""
        self._count = config.cluster_local
        self._stopping = threading.Lock()
        self._sending = threading.Lock()
        mask = log.wanted(config)
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel: socket.socket | None = mine
        root = os.path.dirname(os.path.dirname(mosq.version.__file__))
        path = os.pathsep.join(one for one in (root, os.environ.get("PYTHONPATH", "")) if one)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", COMMAND % theirs.fileno()], stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()], start_new_session=True, env={**os.environ, "PYTHONPATH": path})
        self._log = threading.Thread(target=self._pass_on, name="mosq-log", daemon=True)
        self._log.start()
        try:
            assert self._process.stdin is not None
            with self._process.stdin as pipe:
                pipe.write(pickle.dumps((source, options, mask == LOG_ALL, mask == 0)))
            self.ports = self._wait_ready(mine)
        except BaseException:
            self.stop()
            raise

    def _wait_ready(self, channel: socket.socket) -> list[int]:
        channel.settimeout(START_S)
        data = channel.recv(MESSAGE_BYTES)
        answer: dict[str, Any] = {"is": "failed", "text": "the process of the workers has ended"}
        if data:
            answer = json.loads(data)
        channel.settimeout(ANSWER_S)
        if answer["is"] == "ready":
            ports: list[int] = answer["ports"]
            return ports
        text = str(answer["text"]).removeprefix("Error: ")
        raise ConfigError(text) if answer.get("wrong_config") else OSError(text)

    def stop(self) -> None:
        """Stop; returns when no process and no thread runs any more. Any thread may call this, any number of times."""
        with self._stopping:
            if self._channel is None:
                return
            channel, self._channel = self._channel, None
            channel.close()             # the end for the process
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()    # its workers end by themselves
                self._process.wait()
            if self._log is not threading.current_thread():
                self._log.join()
            assert self._process.stderr is not None
            self._process.stderr.close()

    def adopt(self, fd: int, client_id: str) -> None:
        """Hand a socket over to the worker of a client id, which trusts it. Raises RuntimeError if it is gone."""
        self._send({"do": "adopt", "id": client_id}, fd)
        os.close(fd)                    # the worker has another descriptor of it

    def has_other_workers(self) -> bool:
        """Return whether the broker goes on if a process of it ends."""
        return self._channel is not None and self._process.poll() is None

    def call(self, method: str, *arguments: str) -> "Any":
        """Call a method of the engine of each worker. Lists of dicts are joined, and each dict gets the number of its
        worker; numbers are added. Raises BrokerStopped."""
        found = [self._ask(worker, method, list(arguments)) for worker in range(self._count)]
        if isinstance(found[0], list):
            return [{**item, "worker": number} for number, several in enumerate(found, 1) for item in several]
        if isinstance(found[0], dict):
            return {name: sum(one.get(name, 0) for one in found) for name in found[0]}
        return any(found)

    def _ask(self, worker: int, method: str, arguments: list[str]) -> "Any":
        mine, theirs = socket.socketpair()
        with mine:
            with theirs:
                try:
                    self._send({"do": "call", "worker": worker, "method": method, "arguments": arguments},
                               theirs.fileno())
                except RuntimeError:
                    raise BrokerStopped("the broker is not running") from None
            until_s, data = time.monotonic() + ANSWER_S, b""
            while True:
                mine.settimeout(max(0.001, until_s - time.monotonic()))
                part = mine.recv(1 << 16)
                if not part:
                    break
                data += part
        if not data:
            raise BrokerStopped(f"worker {worker + 1} is not running")
        return json.loads(data)

    def _send(self, message: "dict[str, Any]", fd: int) -> None:
        channel = self._channel
        try:
            if channel is None:
                raise BrokenPipeError
            with self._sending:
                socket.send_fds(channel, [json.dumps(message).encode()], [fd])
        except (OSError, ValueError):
            raise RuntimeError("the process of the workers has ended") from None

    def _pass_on(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            try:
                found = json.loads(line)
                log.report(LOG_TYPES.get(found["level"], INFORMATION), found["text"])
            except (ValueError, KeyError, TypeError):
                log.report(LOG_TYPES["error"], line.decode("utf-8", "replace").rstrip("\n"))
