"""Run a cluster on this machine, kill its nodes under load, and account for each message (`make cluster-demo`)."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tests.cluster.demo.load import Figures, Load
from tests.cluster.demo.machines import Machines, Node
from tests.cluster.demo.screen import Moment, Screen
from tests.cluster.haproxy import program

AGAIN_S = 4.5                   # from a kill to the start of the node: other nodes have its workers after lease and margin (3 s)
TICK_S = 0.1
DRAW_S = 1.0
EPILOG = """examples:
  make cluster-demo                         one minute, a kill every ten seconds
  make cluster-demo SECONDS=300             five minutes
  dev/cluster-demo --rate 1000 --sessions 200
  dev/cluster-demo --seconds 30 --kill-every 5 > demo.log

It starts three servers of Redis, of which one replica must confirm each message, three Sentinels, three nodes of mosq with six workers at
127.0.0.11 to 127.0.0.13, and HAProxy in front of them if it is installed. All of them end with it.

exit status:
  0  all acknowledged messages arrived, those of QoS 2 once, in order
  1  a message was lost, doubled or out of order, or a session was lost
"""


class Demo:
    def __init__(self, machines: Machines, load: Load, seconds: float, kill_every_s: float) -> None:
        self.machines, self.load, self.seconds, self.kill_every_s = machines, load, seconds, kill_every_s
        self.screen = Screen(machines)
        self.began = time.monotonic()
        self.stop = asyncio.Event()
        self.asker = ThreadPoolExecutor(1)          # asks Redis, one question at a time
        self.places: list[str | None] = machines.places()
        self.waiting_since: float | None = None     # since when a worker has no node
        self.slowest_s = 0.0                        # time without a node

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop.set)
        await self.load.begin()
        self.began = time.monotonic()
        drawing = loop.create_task(self.draw("Load and kills"))
        kills = loop.create_task(self.kill_nodes())
        with suppress(TimeoutError):
            async with asyncio.timeout(self.seconds):
                await self.stop.wait()
        await cancelled(kills, drawing)
        for node in self.machines.nodes:
            if not node.alive():
                self.start(node)
        drawing = loop.create_task(self.draw("No more load; what was acknowledged must arrive"))
        await self.load.settle()
        await cancelled(drawing)
        await self.look()
        self.screen.show(self.moment("The end"))
        self.screen.close()
        await self.load.end()

    # ---- kills

    async def kill_nodes(self) -> None:
        """Kill one node after the other, and start it again when others have its workers."""
        for turn in range(sys.maxsize):
            node = self.machines.nodes[turn % len(self.machines.nodes)]
            await asyncio.sleep(max(0.0, self.began + (turn + 1) * self.kill_every_s - time.monotonic()))
            had = [str(place + 1) for place, name in enumerate(self.places) if name == node.name]
            self.screen.event(f"kill -9 of node {node.name}, which has the workers {', '.join(had) or '-'}")
            node.kills += 1
            with self.load.chaos.outage():
                await asyncio.get_running_loop().run_in_executor(None, node.die)
            await asyncio.sleep(min(AGAIN_S, self.kill_every_s / 2))
            self.start(node)

    def start(self, node: Node) -> None:
        node.spawn()
        self.screen.event(f"node {node.name} starts again")

    # ---- the screen

    async def draw(self, phase: str) -> None:
        """Look where the workers are ten times a second, and draw once a second."""
        drawn = 0.0
        while True:
            await self.look()
            if time.monotonic() - drawn >= DRAW_S:
                drawn = time.monotonic()
                self.screen.show(self.moment(phase))
            await asyncio.sleep(TICK_S)

    async def look(self) -> None:
        places = await asyncio.get_running_loop().run_in_executor(self.asker, self.machines.places)
        for place, (before, now) in enumerate(zip(self.places, places, strict=True)):
            if now is not None and now != before:
                self.screen.event(f"worker {place + 1} is at node {now}")
        self.places = places
        if None in places:
            self.waiting_since = self.waiting_since or time.monotonic()
        elif self.waiting_since is not None:
            self.slowest_s = max(self.slowest_s, time.monotonic() - self.waiting_since)
            self.waiting_since = None

    def moment(self, phase: str) -> Moment:
        haproxy = self.machines.haproxy
        return Moment(phase, time.monotonic() - self.began, self.places, {} if haproxy is None else haproxy.servers(),
                      {qos: self.load.account(qos) for qos in (1, 2)})

    def summary(self) -> str:
        total = sum((self.load.account(qos) for qos in (1, 2)), Figures())
        audit = self.load.chaos.audit
        kills = sum(node.kills for node in self.machines.nodes)
        lines = [f"{kills} kills of nodes; workers were without a node for {self.slowest_s:.1f} s at most; {self.load.chaos.connects:,} connections",
                 f"{total.acknowledged:,} messages acknowledged, {total.delivered:,} deliveries to {len(audit.sessions)} durable sessions, "
                 f"{audit.faults['lost']:,} lost, {audit.faults['doubled']:,} doubled at QoS 2, {total.again:,} again at QoS 1"]
        others = [f"{n:,} {kind}" for kind, n in audit.faults.items() if n and kind not in ("lost", "doubled")]
        if others:
            lines.append(f"other faults: {', '.join(others)}")
        verdict = "Nothing acknowledged was lost." if audit.ok else "SOMETHING IS WRONG."
        return "\n".join([*lines, *audit.shown, verdict])


async def cancelled(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks; raise the error of one that has failed."""
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def main() -> int:
    parser = argparse.ArgumentParser(prog="dev/cluster-demo", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="time of the load (default: 60)")
    parser.add_argument("--kill-every", type=float, default=10, metavar="SECONDS", help="time from one kill to the next (default: 10)")
    parser.add_argument("--sessions", type=int, default=60, help="clients; a fifth of them publishes (default: 60)")
    parser.add_argument("--rate", type=int, default=200, help="messages a second, of all publishers together (default: 200)")
    parser.add_argument("--without-haproxy", action="store_true", help="let clients connect to the nodes in turns, also if HAProxy is installed")
    options = parser.parse_args()
    print("Three servers of Redis, three Sentinels and three nodes start.", flush=True)
    with Machines(program() is not None and not options.without_haproxy) as machines:
        async def run() -> Demo:
            demo = Demo(machines, Load(machines.addresses(), options.sessions, options.rate), options.seconds, options.kill_every)
            await demo.run()
            return demo

        demo = asyncio.run(run())
    print(demo.summary())
    return 0 if demo.load.chaos.audit.ok else 1


if __name__ == "__main__":
    sys.exit(main())
