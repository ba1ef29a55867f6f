"""Find workers that have two processes at one time: then their sessions have two homes. Findings are about processes, because a node
may run no second one even for a moment."""

from __future__ import annotations

from collections.abc import Mapping

from tests.harness.broker import is_running


class Homes:
    """The processes of each worker that have been seen and may still run."""

    def __init__(self) -> None:
        self._known: dict[int, dict[int, str]] = {}      # worker -> process -> node

    def see(self, node: str, workers: Mapping[int, int]) -> list[str]:
        """Take the processes that a node has now (process -> worker); return what is wrong. A process that was seen before may have
        been given to another parent since, so each one is asked whether it runs."""
        found = []
        for pid, worker in workers.items():
            known = self._known.setdefault(worker, {})
            if pid in known:
                continue
            others = {one: where for one, where in known.items() if is_running(one)}
            if others and is_running(pid):
                places = ", ".join(f"process {one} at node {where}" for one, where in others.items())
                found.append(f"two homes: worker {worker} has process {pid} at node {node}, and {places}")
            self._known[worker] = {**others, pid: node}
        return found
