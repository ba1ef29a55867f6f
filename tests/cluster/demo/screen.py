"""Show the demo of a cluster: tables that are drawn again each second on a terminal, else a line every few seconds."""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tests.cluster.demo.load import Figures
from tests.cluster.demo.machines import Machines

LINE_S = 5.0
EVENTS = 8                      # that the screen shows


class Moment(NamedTuple):
    """The state at one moment."""

    phase: str
    gone_s: float
    places: list[str | None]    # the node of each worker
    connections: dict[str, tuple[bool, int]]    # by node, as HAProxy sees it: whether it is up, and its connections
    figures: dict[int, Figures]                 # by QoS


class Screen:
    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.events: list[str] = []
        self.is_terminal = sys.stdout.isatty()
        self._live = Live(console=Console(), auto_refresh=False)
        self._line_at = float("-inf")

    def event(self, text: str) -> None:
        """Note an event."""
        self.events.append(f"{time.strftime('%H:%M:%S')} {text}")
        if not self.is_terminal:
            print(self.events[-1], flush=True)

    def show(self, moment: Moment) -> None:
        """Show the state; on a terminal in the same place as before."""
        if self.is_terminal:
            if not self._live.is_started:
                self._live.start()
            self._live.update(self._drawn(moment), refresh=True)
        elif time.monotonic() - self._line_at >= LINE_S:
            self._line_at = time.monotonic()
            print(line_of(moment), flush=True)

    def close(self) -> None:
        """Leave the last picture on the terminal."""
        self._live.stop()

    def _drawn(self, moment: Moment) -> Group:
        front = "HAProxy in front" if self.machines.haproxy else "no HAProxy: clients know all nodes"
        head = Text(f"Three nodes, {len(moment.places)} workers, {front}. {moment.phase}, {moment.gone_s:.0f} s", style="bold")
        return Group(head, self._nodes(moment), figures_table(moment.figures), Text("\n".join(self.events[-EVENTS:])))

    def _nodes(self, moment: Moment) -> Table:
        table = Table("node", "address", "process", "HAProxy", "connections", "workers", "kills")
        for node in self.machines.nodes:
            is_up, connections = moment.connections.get(node.name, (None, None))
            workers = " ".join(str(place + 1) for place, name in enumerate(moment.places) if name == node.name)
            alive = node.alive()
            table.add_row(node.name, f"{node.host}:{self.machines.port}", "runs" if alive else "killed", {True: "up", False: "down", None: "-"}[is_up],
                          "-" if connections is None else str(connections), workers or "-", str(node.kills), style="" if alive else "red")
        waiting = " ".join(str(place + 1) for place, name in enumerate(moment.places) if name is None)
        if waiting:
            table.add_row("none", "", "", "", "", waiting, "", style="yellow")
        return table


def figures_table(figures: dict[int, Figures]) -> Table:
    table = Table("", "published", "acknowledged", "delivered", "on the way", "lost", "doubled", "again (QoS 1)")
    for qos, row in sorted(figures.items()):
        bad = row.lost or row.doubled
        table.add_row(f"QoS {qos}", *(f"{n:,}" for n in row), style="bold red" if bad else "")
    return table


def line_of(moment: Moment) -> str:
    """Return the state in one line."""
    total = sum(moment.figures.values(), Figures())
    homes = " ".join(f"{place + 1}:{name or '-'}" for place, name in enumerate(moment.places))
    return (f"{moment.phase}, {moment.gone_s:.0f} s: {total.acknowledged:,} acknowledged, {total.delivered:,} delivered, {total.pending:,} on the way, "
            f"{total.lost:,} lost, {total.doubled:,} doubled; workers {homes}")
