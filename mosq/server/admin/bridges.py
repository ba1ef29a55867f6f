"""Composes the state of bridges for listBridges. Reads what the bridges' policies hold; decides nothing."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NEVER = float("inf")
# clearer words for those internal states that a reader of the API would not understand
STATES = {"up": "connected", "rest": "idle", "finding": "looking up", "opening": "connecting", "pause": "waiting",
          "closing": "closing"}


def states(bridges: "Any") -> "list[dict[str, Any]]":
    """Return a dict for each bridge: name, state, address, seconds since it connected or until the next attempt, and
    the number of queued messages."""
    waiting = {one["name"]: one.get("pending") for one in bridges.engine.bridges()}
    now_s = bridges.now_s()
    return [_state(policy, waiting.get(policy.name), now_s) for policy in list(bridges.policies.values())]


def _state(policy: "Any", waiting: int | None, now_s: float) -> "dict[str, Any]":
    host = f"[{policy.host}]" if ":" in policy.host else policy.host
    is_waiting = policy.state == "pause" and policy.due_s != NEVER
    return {"name": policy.name, "state": STATES.get(policy.state, policy.state), "address": f"{host}:{policy.port}",
            "connectedFor": round(now_s - policy.up_s) if policy.state == "up" and policy.up_s is not None else None,
            "nextTryIn": round(max(0.0, policy.due_s - now_s)) if is_waiting else None, "queued": waiting}
