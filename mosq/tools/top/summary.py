"""The head lines of `mosq top`: the broker in four lines. Knows a reading, no terminal library."""

from mosq.tools.top.texts import NONE, duration, fitted, octets, safe, short

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.tools.top.reading import Reading

DROPS_SHOWN = 4


def lines(reading: "Reading", url: str, columns: int) -> list[str]:
    """Return four lines of exactly this width."""
    return [fitted(line, columns) for line in (_process(reading, url), _clients(reading), _rates(reading),
                                               _drops(reading))]


def _process(reading: "Reading", url: str) -> str:
    process = reading.process
    cpu = reading.rates["cpu"]
    version = safe(str(reading.stats.get("version", "")))
    return (f"mosq {version or NONE} at {safe(url)}  up {duration(process.get('uptime'))}  "
            f"CPU {NONE if cpu is None else f'{cpu:.1f} %'}  RSS {octets(process.get('residentBytes'))}")


def _clients(reading: "Reading") -> str:
    number = reading.counter
    return (f"Clients {number('clients', 'clients_connected')} connected, {number('clients', 'clients_total')} sessions"
            f"  Subs {number('subscriptions', 'subscriptions') + number('subscriptions', 'shared_subscriptions')}"
            f"  Retained {number('queues', 'retained')}"
            f"  Messages {octets(number('queues', 'store_bytes'))}")


def _rates(reading: "Reading") -> str:
    rates = reading.rates
    return (f"In {short(rates['in'])} msg/s {octets(rates['bytes_in'])}/s"
            f"  Out {short(rates['out'])} msg/s {octets(rates['bytes_out'])}/s"
            f"  Unsent {octets(reading.counter('queues', 'unsent_bytes'))}"
            f"  Connects {short(rates['connections'])}/s")


def _drops(reading: "Reading") -> str:
    reasons = ", ".join(f"{safe(name)} {short(rate)}" for name, rate in list(reading.drops.items())[:DROPS_SHOWN])
    disk = reading.stats.get("disk", {})
    state = safe(str(disk.get("state", NONE))) if disk.get("segments", 1) else NONE     # a store has a segment
    return (f"Store {state}, {octets(reading.counter('disk', 'waiting_bytes'))} waiting"
            f"  Drops {short(reading.drops_rate)}/s{': ' if reasons else ''}{reasons}")
