"""Composes the state of bridges for listBridges. Reads what the bridges' policies hold; decides nothing."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NEVER = float("inf")
# clearer words for those internal states that a reader of the API would not understand
STATES = {"up": "connected", "rest": "idle", "finding": "looking up", "opening": "connecting", "pause": "waiting",
          "closing": "closing"}


def states(links: "Any") -> "list[dict[str, Any]]":
    """Return a dict for each bridge: name, state, address, seconds since it connected or until the next attempt, and
    the number of queued messages."""
    waiting = {one["name"]: one.get("pending") for one in links.engine.bridges()}
    now_s = links.now_s()
    return [_state(link, waiting.get(link.name), now_s) for link in links.links.values()]


def _state(link: "Any", waiting: int | None, now_s: float) -> "dict[str, Any]":
    host = f"[{link.host}]" if ":" in link.host else link.host
    is_waiting = link.state == "pause" and link.due_s != NEVER
    return {"name": link.name, "state": STATES.get(link.state, link.state), "address": f"{host}:{link.port}",
            "connectedFor": round(now_s - link.up_s) if link.state == "up" and link.up_s is not None else None,
            "nextTryIn": round(max(0.0, link.due_s - now_s)) if is_waiting else None, "queued": waiting}
