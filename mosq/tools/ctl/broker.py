"""The commands about a broker: Mosquitto's, and those that only mosq has, on their own topic."""

from mosq.tools.ctl import hot, show
from mosq.tools.ctl.spec import CLIENT, NUMBER, Arg, Module, Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mosq.tools.ctl.spec import Values

TOPIC, OWN_TOPIC = "$CONTROL/broker/v1", "$CONTROL/mosq/broker/v1"
MOSQUITTO, OWN = "Any broker", "mosq only"
CLIENTID = Arg("clientid", CLIENT)


def _clients(values: "Values") -> "dict[str, Any]":
    fields: dict[str, Any] = {**values}
    for name in ("count", "cursor"):
        if name in fields:
            fields[name] = int(fields[name])
    if "state" in fields:
        fields["connected"] = fields.pop("state") == "connected"
    return fields


SPECS = (
    Spec("listPlugins", "List the loaded plugins.", show=show.plugins, section=MOSQUITTO),
    Spec("listListeners", "List the broker's listeners.", show=show.listeners, section=MOSQUITTO),
    Spec("listClients", "List clients with address, queue and session; at most 1000 per call, from the cursor on.",
         (Arg("count", NUMBER, False), Arg("cursor", NUMBER, False), Arg("prefix", required=False, flags=("--prefix",)),
          Arg("username", required=False, flags=("--username",)),
          Arg("state", ("connected", "offline"), False, ("--state",))), _clients, show.sessions, OWN),
    Spec("getClient", "Show one client with address, queue and session.", (CLIENTID,), show=show.session, section=OWN),
    Spec("kickClient", "Disconnect a client; its session stays.", (CLIENTID,), section=OWN),
    Spec("listSubscriptions", "List a client's subscriptions; at most 1000 per call, from the offset on.",
         (CLIENTID, Arg("offset", NUMBER, False)), show=show.subscriptions, section=OWN),
    Spec("getStats", "Show numbers of clients, messages and queues, and drops and refusals by reason.", show=show.stats,
         section=OWN),
    Spec("listBridges", "List the bridges and their state.", show=show.bridges, section=OWN),
    Spec("hot", "Show hot topics and clients, and slow subscribers; at most 100 of each, 20 by default.",
         (Arg("limit", NUMBER, False),), show=hot.lines, section=OWN),
    Spec("listDrops", "List the reasons of drops, with count and last example.", show=show.drops, section=OWN),
    Spec("listLinks", "List the links between the workers: routes, queued and dropped messages, latency.",
         show=show.links, section=OWN),
)

MODULE = Module("broker", "Listeners and plugins of a broker; with mosq also clients, queues and bridges.", SPECS,
                lambda spec: TOPIC if spec.section == MOSQUITTO else OWN_TOPIC)
