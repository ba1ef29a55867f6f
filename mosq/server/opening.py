"""Composes the log lines about listeners that open, and removes listeners that this machine cannot open. Opens no
listener itself.

Imported before the broker listens, so it imports almost nothing.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.config.model import Config, Listener

IPV6_ADDRESSES = "/proc/net/if_inet6"
IPV6_LOOPBACK = "0" * 31 + "1"


def reachable(config: "Config") -> "Config":
    """Remove the listener on the IPv6 loopback in local only mode if this machine has no such address."""
    if config.local_only and not _has_ipv6_loopback():
        config.listeners = [listener for listener in config.listeners if listener.host != "::1"]
    return config


def opening_lines(listener: "Listener") -> list[str]:
    """Return the lines that the log gets when the listener opens, in Mosquitto's wording."""
    if listener.protocol == "http_api":
        where = f"on port {listener.port}" if listener.path is None else f"on path {listener.path}"
        lines = [f"Opening http api listen socket {where}."]
        return [*lines, f"Using http_dir {listener.http_dir}"] if listener.http_dir else lines
    if listener.path is not None:
        return [f"Opening unix listen socket on path {listener.path}."]
    if listener.protocol == "websockets":
        return [f"Opening websockets listen socket on port {listener.port}."]
    families = [listener.socket_domain] if listener.socket_domain else ["ipv4", "ipv6"]
    if listener.host is not None:
        # a host name may stand for IPv4 and IPv6; the system decides when it binds
        numeric = "ipv6" if ":" in listener.host else "ipv4" if listener.host.replace(".", "").isdigit() else None
        families = [numeric] if numeric else families[:1]
    elif not os.path.exists(IPV6_ADDRESSES):
        families = [family for family in families if family != "ipv6"]
    return [f"Opening {family} listen socket on port {listener.port}." for family in families]


def compact_lines(config: "Config") -> list[str]:
    """Return a warning if a listener has `tls_compact_records`, and this OpenSSL does not allow it."""
    if not any(one.tls_compact_records and (one.certfile or one.psk_hint) for one in config.listeners):
        return []
    from mosq.engine import compact_records_refusal

    why = compact_records_refusal()
    if not why:
        return []
    return [f"Warning: 'tls_compact_records' has no effect: {why}. OpenSSL processes the records."]


def _has_ipv6_loopback() -> bool:
    try:
        with open(IPV6_ADDRESSES) as file:
            return any(line.startswith(IPV6_LOOPBACK) for line in file)
    except OSError:
        return False
