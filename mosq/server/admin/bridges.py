"""The state of bridges, for listBridges. Knows what `mosq.server.bridge.links.Links` has; decides nothing."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NEVER = float("inf")
# of a link's own words, those that say little to who has not read its code
STATES = {"up": "connected", "rest": "idle", "finding": "looking up", "opening": "connecting", "pause": "waiting",
          "closing": "closing"}


def states(links: "Any") -> "list[dict[str, Any]]":
    """A dict of each bridge: name, state, address; whether and when it tries again; what waits for the other side."""
    waiting = {one["name"]: one.get("pending") for one in links.engine.bridges()}
    now_s = links.now_s()
    return [_state(link, waiting.get(link.name), now_s) for link in links.links.values()]


def _state(link: "Any", waiting: int | None, now_s: float) -> "dict[str, Any]":
    host = f"[{link.host}]" if ":" in link.host else link.host
    is_waiting = link.state == "pause" and link.due_s != NEVER
    return {"name": link.name, "state": STATES.get(link.state, link.state), "address": f"{host}:{link.port}",
            "connectedFor": round(now_s - link.up_s) if link.state == "up" and link.up_s is not None else None,
            "nextTryIn": round(max(0.0, link.due_s - now_s)) if is_waiting else None, "queued": waiting}
