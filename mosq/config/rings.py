"""Pairs of bridges by which a message may go round for ever: what comes in by one goes out by the other to the same
broker, and 3.x has no place for where it has been (docs/bridges.md, Loops). Knows the configuration of this broker
alone: rings that others close are not seen.

Cost: at most PAIRS_MAX pairs of lines are compared, and each address is told of once.
"""

from mosq.config.bridge import Bridge, BridgeTopic

PAIRS_MAX = 100_000


def may_go_round(bridges: list[Bridge]) -> list[str]:
    """A warning for each."""
    found: list[str] = []
    left = PAIRS_MAX
    at: dict[tuple[str, int], list[Bridge]] = {}
    for bridge in bridges:
        for address in dict.fromkeys(bridge.addresses):
            told = False
            for other in at.setdefault(address, []):
                left -= 2 * len(bridge.topics) * len(other.topics)
                if left < 0:
                    return found
                if not told and not (_guards(bridge) and _guards(other)) and (_leads(bridge, other)
                                                                             or _leads(other, bridge)):
                    found.append(
                        f"The bridges '{other.name}' and '{bridge.name}' ({bridge.origin}) connect to one broker "
                        f"({address[0]}:{address[1]}), and what comes in by one goes out by the other: messages may go "
                        "round for ever. Use `bridge_protocol_version mqttv50` for both, or topics that do not meet.")
                    told = True
            at[address].append(bridge)
    return found


def _guards(bridge: Bridge) -> bool:
    return bridge.bridge_protocol_version == "mqttv50" and bridge.bridge_loop_guard


def _leads(inward: Bridge, outward: Bridge) -> bool:
    """From the remote broker by one, and back by the other, to where the first one takes it again."""
    return any(meet(one.local, other.local) and meet(one.remote, other.remote)
               for one in _lines(inward, "in") for other in _lines(outward, "out"))


def _lines(bridge: Bridge, direction: str) -> list[BridgeTopic]:
    return [topic for topic in bridge.topics if topic.direction in (direction, "both")]


def meet(one: str, other: str) -> bool:
    """Is there a topic that both filters match?"""
    a, b = one.split("/"), other.split("/")
    if (a[0] in ("+", "#") and b[0].startswith("$")) or (b[0] in ("+", "#") and a[0].startswith("$")):
        return False
    for x, y in zip(a, b, strict=False):
        if "#" in (x, y):
            return True
        if x != y and "+" not in (x, y):
            return False
    return len(a) == len(b) or max(a, b, key=len)[min(len(a), len(b))] == "#"
