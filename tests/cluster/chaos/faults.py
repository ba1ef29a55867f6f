"""Make the faults of a cluster. Each of them returns when its cause is over; the cluster may still be busy with its effects.

A fault that lasts ends with the event that shows its effect, such as a take-over by the other nodes, or after a random time."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from tests.chaos.client import Outage
from tests.cluster.chaos.machines import MASTER, Cluster, Node, Server

T = TypeVar("T")
POLL_S = 0.05
EVENT_S = 60.0                  # time limit for an event that must come, also on a slow machine
LASTS_S = (1.0, 6.0)            # of faults without an event that shows their effect
LOSS, SLOW_NODE_S, SLOW_REDIS_S = 0.05, 0.2, 0.1
SLICE_S, SHARE = 0.05, 0.2      # a node with a slow CPU runs for this share of each slice
JUMP_MS = 3600 * 1000           # the largest jump of a clock
NO_PASSWORD = "another-password"


class LateError(AssertionError):
    """An event did not come."""


async def comes(what: Callable[[], bool], name: str) -> None:
    """Wait until something is the case. It is asked in a thread, because it may ask Redis."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + EVENT_S
    while not await loop.run_in_executor(None, what):
        if loop.time() > until_s:
            raise LateError(f"within {EVENT_S:.0f} s this did not come: {name}")
        await asyncio.sleep(POLL_S)


async def blocking(what: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, what)


class Faults:
    """The faults. `draw` decides about each of them; `jumps` gets those of clocks."""

    def __init__(self, cluster: Cluster, draw: random.Random, jumps: list[Outage]) -> None:
        self.cluster, self.draw, self.jumps = cluster, draw, jumps
        self.away: Server | None = None         # of Redis: the primary that was killed last
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "node killed": self.node_killed, "node stopped": self.node_stopped, "node restarted": self.node_restarted,
            "worker killed": self.worker_killed, "redis killed": self.redis_killed, "redis stopped": self.redis_stopped,
            "redis hangs": self.redis_hangs, "redis failover": self.redis_failover, "redis slow": self.redis_slow, "nodes cut": self.nodes_cut, "nodes cut one way": self.nodes_cut_one_way,
            "node cut from redis": self.node_cut_from_redis, "loss": self.loss, "slow node": self.slow_node,
            "slow cpu": self.slow_cpu, "disk full": self.disk_full, "clock jump": self.clock_jump, "redis out of memory": self.redis_out_of_memory,
            "redis read-only": self.redis_read_only, "redis password": self.redis_password,
        }

    async def make(self, kind: str) -> None:
        """Make a fault. A server of Redis that is away since the one before comes back first."""
        away, self.away = self.away, None
        if away is not None:
            await blocking(away.start)
            await comes(self.all_follow, "a server of Redis that was started again follows the primary")
        await self.kinds[kind]()

    def all_follow(self) -> bool:
        primary = self.cluster.primary()
        return primary is not None and primary.replicas() == len(self.cluster.servers) - 1

    def node(self) -> Node:
        return self.draw.choice(self.cluster.nodes)

    def lost_by(self, node: Node) -> bool:
        """Return whether other nodes have all workers."""
        table = self.cluster.table()
        return bool(table) and all(entry.name not in ("", node.name) for entry in table.values())

    async def lasts(self) -> None:
        """Wait for the time that a fault lasts."""
        await asyncio.sleep(self.draw.uniform(*LASTS_S))

    async def with_rules(self, rules: Iterable[tuple[int, int, bool, float, float]], until: Callable[[], Awaitable[None]]) -> None:
        self.cluster.switch.rules(list(rules))
        try:
            await until()
        finally:
            self.cluster.switch.rules([])

    def pairs(self, some: Iterable[int], others: Iterable[int] | None = None) -> list[tuple[int, int]]:
        """Return the directions between some machines and others, both ways."""
        every = [machine.number for machine in self.cluster.machines]
        return [pair for a in some for b in (every if others is None else others) if a != b for pair in ((a, b), (b, a))]

    # ---- processes

    async def node_killed(self) -> None:
        node = self.node()
        await blocking(node.die)
        if self.draw.random() < 0.5:          # otherwise it starts at once, and waits for its own death
            await comes(lambda: self.lost_by(node), f"others take the workers of {node.name}, which is dead")
        node.spawn()

    async def node_stopped(self) -> None:
        node = self.node()
        await blocking(node.pause)
        try:
            if self.draw.random() < 0.75:
                await comes(lambda: self.lost_by(node), f"others take the workers of {node.name}, which is stopped")
            else:
                await self.lasts()
        finally:
            await blocking(node.resume)

    async def node_restarted(self) -> None:
        node = self.node()
        node.send_signal(signal.SIGTERM)
        assert node.process is not None
        await blocking(lambda: node.process.wait(EVENT_S))      # type: ignore[union-attr]
        if self.draw.random() < 0.5:
            await comes(lambda: self.lost_by(node), f"others take the workers of {node.name}, which has left")
        node.spawn()

    async def worker_killed(self) -> None:
        workers = await blocking(lambda: [pid for node in self.cluster.nodes for pid in node.workers()])
        if workers:
            pid = self.draw.choice(sorted(workers))
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    async def slow_cpu(self) -> None:
        """Let a node run for a part of the time only."""
        node = self.node()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self.draw.uniform(*LASTS_S)
        while loop.time() < until_s:
            await blocking(node.pause)
            try:
                await asyncio.sleep(SLICE_S * (1 - SHARE))
            finally:
                await blocking(node.resume)
            await asyncio.sleep(SLICE_S * SHARE)

    async def disk_full(self) -> None:
        node = self.node()
        node.faults.set(full=1)
        await self.lasts()
        node.faults.heal()

    async def clock_jump(self) -> None:
        """Let the wall clock of a node jump, and back later."""
        node, jump = self.node(), Outage(time.monotonic())
        self.jumps.append(jump)
        node.faults.set(wall_ms=self.draw.randint(-JUMP_MS, JUMP_MS))
        await self.lasts()
        node.faults.set(wall_ms=0)
        jump.ended_at = time.monotonic()

    # ---- Redis

    async def primary(self) -> tuple[Server, list[Server]]:
        """Return the primary, when all others follow it, and the others."""
        await comes(self.all_follow, "all servers of Redis follow the primary")
        primary = await blocking(self.cluster.primary)
        assert primary is not None
        return primary, [server for server in self.cluster.servers if server is not primary]

    async def redis_killed(self) -> None:
        """Kill the primary. All must serve again without it. It starts before the next fault, sometimes as a replica: otherwise it takes
        itself for the primary, too, until the Sentinels see it."""
        primary, others = await self.primary()
        await blocking(primary.kill)
        self.away = primary
        await comes(lambda: self.cluster.primary() in others, "a replica of Redis becomes the primary")
        if self.draw.random() < 0.5:
            primary.follow(next(other for other in others if other.is_primary()))

    async def redis_hangs(self) -> None:
        """Stop the primary, and continue it as soon as a replica is promoted, perhaps before the other one follows that."""
        primary, others = await self.primary()
        primary.pause()
        try:
            await comes(lambda: any(other.is_primary() for other in others), "a replica of Redis is promoted")
        finally:
            primary.resume()
        await comes(self.all_follow, "all servers of Redis follow the new primary")

    async def redis_failover(self) -> None:
        """Let a Sentinel promote a replica while the primary serves. It gives up after FAILOVER_MS, for example on a busy machine, and is asked
        again then. It refuses while a failover is under way."""
        primary, others = await self.primary()
        sentinel = self.cluster.sentinels[0]

        def promoted() -> bool:
            if sentinel.primary() == primary.machine.inner:
                sentinel.ask(f"SENTINEL FAILOVER {MASTER}")
            return self.cluster.primary() in others

        await comes(promoted, "a replica of Redis becomes the primary")
        await comes(self.all_follow, "all servers of Redis follow the new primary")

    async def redis_stopped(self) -> None:
        """Stop all servers for a time, or kill them and start them again."""
        servers = self.cluster.servers
        killed = self.draw.random() < 0.5
        for server in servers:
            server.kill() if killed else server.pause()
        await self.lasts()
        for server in servers:
            await blocking(server.start if killed else server.resume)

    async def with_setting(self, name: str, value: str, before: str) -> None:
        """Let the primary have another setting for a time. Replicas keep theirs, so a failover ends the fault, too."""
        primary = await blocking(self.cluster.primary)
        assert primary is not None
        await blocking(lambda: primary.ask(f"CONFIG SET {name} {value}", "CLIENT KILL TYPE normal SKIPME yes"))
        await self.lasts()
        login = [f"AUTH {value}"] if name == "requirepass" else []
        answer = await blocking(lambda: primary.ask(*login, f"CONFIG SET {name} {before}"))
        assert answer.endswith(b"+OK\r\n"), answer

    async def redis_out_of_memory(self) -> None:
        await self.with_setting("maxmemory", "1", "0")

    async def redis_read_only(self) -> None:
        await self.with_setting("min-replicas-to-write", "9", "0")

    async def redis_password(self) -> None:
        await self.with_setting("requirepass", NO_PASSWORD, '""')

    async def redis_slow(self) -> None:
        servers = [server.machine.number for server in self.cluster.servers]
        every = [machine.number for machine in self.cluster.machines]
        await self.with_rules(((a, b, False, 0.0, SLOW_REDIS_S) for a in servers for b in every if a != b), self.lasts)

    # ---- the network

    async def nodes_cut(self) -> None:
        a, b = self.draw.sample([node.machine.number for node in self.cluster.nodes], 2)
        await self.with_rules([(a, b, True, 0.0, 0.0), (b, a, True, 0.0, 0.0)], self.lasts)

    async def nodes_cut_one_way(self) -> None:
        a, b = self.draw.sample([node.machine.number for node in self.cluster.nodes], 2)
        await self.with_rules([(a, b, True, 0.0, 0.0)], self.lasts)

    async def node_cut_from_redis(self) -> None:
        node = self.node()
        servers = [server.machine.number for server in self.cluster.servers]
        rules = [(a, b, True, 0.0, 0.0) for a, b in self.pairs([node.machine.number], servers)]

        async def until() -> None:
            if self.draw.random() < 0.5:
                await comes(lambda: self.lost_by(node), f"others take the workers of {node.name}, which cannot reach Redis")
            else:
                await self.lasts()

        await self.with_rules(rules, until)

    async def loss(self) -> None:
        every = [machine.number for machine in self.cluster.machines]
        await self.with_rules(((a, b, False, LOSS, 0.0) for a in every for b in every if a != b), self.lasts)

    async def slow_node(self) -> None:
        """Delay all packets that one node sends."""
        number = self.node().machine.number
        every = [machine.number for machine in self.cluster.machines]
        await self.with_rules(((number, b, False, 0.0, SLOW_NODE_S) for b in every if b != number), self.lasts)
