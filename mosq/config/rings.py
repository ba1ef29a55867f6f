"""Finds pairs of bridges between which a message may circulate for ever: both connect to the same broker, and one sends
out what the other receives. MQTT 3.x cannot mark the brokers that a message has passed (docs/bridges.md, Loops). Only
this broker's configuration is known, so rings that other brokers close are not found.

Cost: at most PAIRS_MAX pairs of lines are compared, and each address is reported once.
"""

from mosq.config.bridge import Bridge, BridgeTopic

PAIRS_MAX = 100_000


def may_go_round(bridges: list[Bridge]) -> list[str]:
    """Return a warning for each address at which messages may circulate."""
    found: list[str] = []
    left = PAIRS_MAX
    at: dict[tuple[str, int], list[Bridge]] = {}
    for bridge in bridges:
        for address in dict.fromkeys(bridge.addresses):
            is_reported = False
            for other in at.setdefault(address, []):
                left -= 2 * len(bridge.topics) * len(other.topics)
                if left < 0:
                    return found
                if not is_reported and not (_guards(bridge) and _guards(other)) and (_leads(bridge, other)
                                                                                    or _leads(other, bridge)):
                    found.append(
                        f"The bridges '{other.name}' and '{bridge.name}' ({bridge.origin}) connect to one broker "
                        f"({address[0]}:{address[1]}), and one sends out what the other receives: messages may "
                        "circulate for ever. Use `bridge_protocol_version mqttv50` and `bridge_loop_guard true` "
                        "for both, or topics that do not overlap.")
                    is_reported = True
            at[address].append(bridge)
    return found


def _guards(bridge: Bridge) -> bool:
    return bridge.bridge_protocol_version == "mqttv50" and bridge.bridge_loop_guard


def _leads(inward: Bridge, outward: Bridge) -> bool:
    """Return whether a message that `inward` receives can leave by `outward` and be received by `inward` again."""
    return any(meet(one.local, other.local) and meet(one.remote, other.remote)
               for one in _lines(inward, "in") for other in _lines(outward, "out"))


def _lines(bridge: Bridge, direction: str) -> list[BridgeTopic]:
    return [topic for topic in bridge.topics if topic.direction in (direction, "both")]


def meet(one: str, other: str) -> bool:
    """Return whether a topic exists that both filters match."""
    a, b = one.split("/"), other.split("/")
    if (a[0] in ("+", "#") and b[0].startswith("$")) or (b[0] in ("+", "#") and a[0].startswith("$")):
        return False
    for x, y in zip(a, b, strict=False):
        if "#" in (x, y):
            return True
        if x != y and "+" not in (x, y):
            return False
    return len(a) == len(b) or max(a, b, key=len)[min(len(a), len(b))] == "#"
