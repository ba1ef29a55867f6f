"""A node of a cluster for test_nodes.py: the agent, and workers that are processes which use a store in Redis under their token.

    python -m tests.cluster.node ADDRESS NAME FOLDER LEASE_S MARGIN_S WORKERS
    python -m tests.cluster.node worker ADDRESS FOLDER WORKER TOKEN

SIGTERM lets the node leave. A worker notes in FOLDER/served.WORKER each moment at which it served, until its lease is over: it reads the
end of the lease from the file of its node, which the agent writes.
"""

from __future__ import annotations

import os
import secrets
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import redis

from mosq.cluster.address import parse_address
from mosq.cluster.agent import Agent
from mosq.cluster.entries import Announcement
from mosq.cluster.errors import AwayError, RefusedError
from mosq.cluster.member import Member
from mosq.cluster.registry import Registry
from mosq.cluster.terms import Terms, now_s
from mosq.tools.tied import tied

# a store: a head with the token of the process that opened it, and a list of its writes
OPEN = """
if tonumber(redis.call('GET', KEYS[1]) or '0') >= tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1
"""
WRITE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('RPUSH', KEYS[2], ARGV[1])
return 1
"""
PAUSE_S = 0.02
REFUSED, OVER = 9, 8        # exit statuses of a worker: its token is old; its lease is over


class Processes:
    """The workers of this node."""

    def __init__(self, address: str, folder: Path, name: str) -> None:
        self.address, self.folder, self.name = address, folder, name
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.until = (folder / f"lease.{name}").open("wb", buffering=0)
        self.agent: Agent

    def start(self, worker: int, token: int, until_s: float) -> None:
        process = subprocess.Popen(tied([sys.executable, "-m", "tests.cluster.node", "worker", self.address, str(self.folder), self.name,
                                         str(worker), str(token)]))
        self.processes[worker] = process
        threading.Thread(target=self.watch, args=(worker, token, process), daemon=True).start()

    def watch(self, worker: int, token: int, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self.agent.ended(worker, token)

    def stop(self, worker: int) -> None:
        self.processes[worker].terminate()

    def kill(self, workers: list[int]) -> None:
        processes = [self.processes.pop(worker) for worker in workers]
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()

    def lease(self, until_s: float) -> None:
        os.pwrite(self.until.fileno(), struct.pack("d", until_s), 0)


def node(address: str, name: str, folder: Path, lease_s: float, margin_s: float, count: int) -> int:
    terms, run = Terms(lease_s, margin_s), secrets.token_hex(16)
    registry = Registry(parse_address(address), "c", name, run, terms)
    while True:
        try:
            registry.open(count)
        except AwayError as error:
            print(error, flush=True)
            time.sleep(terms.retry_s)
        except RefusedError as error:
            print(error, flush=True)
            return 3
        else:
            break
    processes = Processes(address, folder, name)
    announcement = Announcement(address=f"{name}.example 7883")     # these workers have no clients: nothing connects to it
    member = Member(name, run, count, terms, processes, announcement=announcement, report=lambda _, text: print(f"{now_s():.3f} {text}", flush=True))
    agent = processes.agent = Agent(registry, member)
    signal.signal(signal.SIGTERM, lambda *_: agent.leave())
    try:
        agent.run()
    except RefusedError as error:
        print(error, flush=True)
        return 3
    return 0


def worker(address: str, folder: Path, name: str, number: int, token: int) -> int:
    place = parse_address(address).hosts[0]
    client = redis.Redis(host=place[0], port=place[1], socket_timeout=1, protocol=2)
    keys = [f"store:{number}:head", f"store:{number}:log"]
    lease = (folder / f"lease.{name}").open("rb", buffering=0)
    served = (folder / f"served.{number}").open("ab", buffering=0)
    opened = False
    while True:
        try:
            if not client.eval(WRITE if opened else OPEN, 2, *keys, token):
                return REFUSED
            opened = True
        except redis.exceptions.ConnectionError:
            pass                    # the lease ends, or Redis comes back
        except redis.exceptions.RedisError:
            pass
        until_s, now = struct.unpack("d", os.pread(lease.fileno(), 8, 0))[0], now_s()
        if now >= until_s:
            return OVER
        if opened:
            served.write(f"{token} {now:.6f}\n".encode())
        time.sleep(PAUSE_S)         # the pace of this model of a load


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        sys.exit(worker(sys.argv[2], Path(sys.argv[3]), sys.argv[4], int(sys.argv[5]), int(sys.argv[6])))
    sys.exit(node(sys.argv[1], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6])))
