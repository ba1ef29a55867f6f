"""The options that all nodes of a cluster should have alike, as each node notes them in Redis, and where nodes differ.

    {"run": RUN, "values": {OPTION: TEXT, ...}}

A client may be at any node, so a limit, a listener or a rule that only some nodes have is a surprise, and no node can
see it in its own configuration. Programs that people use read these texts; no node acts on them.
"""

import json
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VALUE_MAX = 200                 # characters of a value that a line shows


class Likeness(NamedTuple):
    """The options of one node. `run`: of its agent."""

    run: str
    values: dict[str, str]

    @property
    def text(self) -> str:
        """Return it as it is written."""
        return json.dumps(self._asdict(), separators=(",", ":"))


def likeness_of(text: str) -> Likeness | None:
    """Read the options of a node; None if they are damaged."""
    try:
        found = json.loads(text)
        return Likeness(str(found["run"]), {str(name): str(value) for name, value in found["values"].items()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):     # the last one of nested lists
        return None


def unlike(noted: "Mapping[str, str]", runs: "Mapping[str, str]") -> "Iterator[str]":
    """Return a sentence for each option that differs. `noted`: texts by node; `runs`: those of the nodes that live. An
    option that a node of another version does not note is no difference."""
    nodes = {name: found.values for name, text in sorted(noted.items())
             if (found := likeness_of(text)) is not None and runs.get(name) == found.run}
    for option in sorted({option for values in nodes.values() for option in values}):
        having: dict[str, list[str]] = {}
        for name, values in nodes.items():
            if option in values:
                having.setdefault(values[option], []).append(name)
        if len(having) > 1:
            shown = "; ".join(f"{value[:VALUE_MAX] or 'nothing'} ({', '.join(names)})"
                              for value, names in having.items())
            yield (f"Nodes have different values of {option}: {shown}. Clients meet one or the other; make them the "
                   "same.")
