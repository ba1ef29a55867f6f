"""The commands about a broker: those of Mosquitto, and those that mosq has beyond them, on a topic of their own."""

from mosq.tools.ctl import show
from mosq.tools.ctl.spec import CLIENT, NUMBER, Arg, Module, Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mosq.tools.ctl.spec import Values

TOPIC, OWN_TOPIC = "$CONTROL/broker/v1", "$CONTROL/mosq/broker/v1"
MOSQUITTO, OWN = "Any broker", "mosq only"
CLIENTID = Arg("clientid", CLIENT)


def _clients(values: "Values") -> "dict[str, Any]":
    told: dict[str, Any] = {**values}
    for name in ("count", "cursor"):
        if name in told:
            told[name] = int(told[name])
    if "state" in told:
        told["connected"] = told.pop("state") == "connected"
    return told


SPECS = (
    Spec("listPlugins", "The plugins that are loaded.", show=show.plugins, section=MOSQUITTO),
    Spec("listListeners", "Where the broker listens.", show=show.listeners, section=MOSQUITTO),
    Spec("listClients", "Clients with address, queue and session; at most 1000 at a time, then from the cursor on.",
         (Arg("count", NUMBER, False), Arg("cursor", NUMBER, False), Arg("prefix", required=False, flags=("--prefix",)),
          Arg("username", required=False, flags=("--username",)),
          Arg("state", ("connected", "offline"), False, ("--state",))), _clients, show.sessions, OWN),
    Spec("getClient", "All about one client.", (CLIENTID,), show=show.session, section=OWN),
    Spec("kickClient", "End a client's connection; its session stays.", (CLIENTID,), section=OWN),
    Spec("listSubscriptions", "What a client subscribed to; 1000 at a time, then from the offset on.",
         (CLIENTID, Arg("offset", NUMBER, False)), show=show.subscriptions, section=OWN),
    Spec("getStats", "Clients, messages, queues, and what was dropped or refused and why.", show=show.pairs,
         section=OWN),
    Spec("listBridges", "Bridges and their state.", show=show.bridges, section=OWN),
)

MODULE = Module("broker", "The broker itself: listeners, plugins; of mosq also clients, queues, bridges.", SPECS,
                lambda spec: TOPIC if spec.section == MOSQUITTO else OWN_TOPIC)
