"""Asks a broker for one reading after the other, over one connection that is opened again when it breaks. Knows
requests and errors, not how a reading is shown. Not for use from two threads.
"""

import math
import os
import time

from mosq.tools.ctl.connection import ConnectionProblemError
from mosq.tools.ctl.conversation import Conversation, NoAnswerError
from mosq.tools.top.listing import Listing
from mosq.tools.top.reading import Reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mosq.tools.ctl.connection import Connection

    Data = dict[str, Any]

TOPIC = "$CONTROL/mosq/broker/v1"
HOT_MAX = 100
UNKNOWN = "Unknown command"     # the broker's words
RULE = "topic readwrite $CONTROL/mosq/broker/#"
NO_HOT = ("This broker does not know the command `hot`: expected a newer mosq. The table of clients works without it.")
SILENT = (f" A broker answers nothing to MQTT 3.x if the user has no right; expected `{RULE}` in the acl_file, or "
          "`-V 5`, which shows the reason.")


class BrokerError(Exception):
    """The broker does not give a reading; the text says why."""


class RefusedError(Exception):
    """The broker answers a request with an error; the connection is good."""


class Broker:
    """One broker, connected when it is asked. `filters`: further arguments of listClients."""

    def __init__(self, connection: "Connection", filters: "Data | None" = None) -> None:
        self.connection = connection
        self.hot_problem: str | None = None     # why there is no table of hot topics
        self._filters = filters or {}
        self._conversation: Conversation | None = None
        self._listing = Listing()
        self._before: Reading | None = None
        if connection.client_id is None:
            connection.client_id = f"mosq-top-{os.urandom(6).hex()}"

    @property
    def is_connected(self) -> bool:
        """Return whether there is a connection, as far as is known."""
        return self._conversation is not None and not self._conversation.closed

    def close(self) -> None:
        """Disconnect."""
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            conversation.close()

    def read_stats(self) -> None:
        """Read the counters that the rates of the next reading begin with. Raises BrokerError, RefusedError."""
        self._before = Reading(self._data("getStats"), time.monotonic())

    def read(self, interval_s: float, with_hot: bool = True) -> Reading:
        """Return the next reading; it may have a part of the clients. Raises BrokerError, RefusedError."""
        stats = self._data("getStats")
        reading = Reading(stats, time.monotonic(), self._before)
        self._before = reading
        self._listing.turn(self._page, interval_s)
        reading.clients = list(self._listing.rows.values())
        reading.is_whole, reading.is_cut = self._listing.is_complete, self._listing.is_cut
        reading.take_hot(self._hot() if with_hot else None)
        return reading

    def read_all(self) -> Reading:
        """Return a reading with all clients, up to the limit. Raises BrokerError, RefusedError."""
        return self.read(math.inf)

    def client(self, client_id: str) -> "tuple[Data, Data]":
        """Return a session and its first subscriptions. Raises BrokerError, RefusedError."""
        session = self._data("getClient", clientid=client_id)["client"]
        return session, self._data("listSubscriptions", clientid=client_id)

    def kick(self, client_id: str) -> None:
        """Disconnect a client. Raises BrokerError, RefusedError."""
        self._ask("kickClient", clientid=client_id)

    def _page(self, count: int, cursor: int) -> "Data":
        data = self._data("listClients", count=count, cursor=cursor, **self._filters)
        rows, following = data.get("clients"), data.get("cursor")
        if not (isinstance(rows, list) and isinstance(following, int)
                and all(isinstance(row, dict) and isinstance(row.get("clientid"), str) for row in rows)):
            raise BrokerError("The broker's answer to listClients is no list of clients.")
        return data

    def _hot(self) -> "Data | None":
        if self.hot_problem == NO_HOT:
            return None
        try:
            data = self._data("hot", limit=HOT_MAX)
        except RefusedError as error:
            self.hot_problem = NO_HOT if str(error) == UNKNOWN else f"The broker refuses the command `hot`: {error}."
            return None
        self.hot_problem = None if data.get("sampled") else data.get("hint") or "The broker samples no messages."
        return data

    # ------------------------------------------------------------ requests

    def _data(self, command: str, **fields: "Any") -> "Data":
        data = self._ask(command, **fields).get("data")
        if not isinstance(data, dict):
            raise BrokerError(f"The broker's answer to {command} has no data.")
        return data

    def _ask(self, command: str, **fields: "Any") -> "Data":
        try:
            if self._conversation is None:
                self._connect()
            assert self._conversation is not None
            response = self._conversation.send(TOPIC, {"command": command, **fields})
        except (ConnectionProblemError, NoAnswerError) as error:
            self.close()                        # also after a late answer, which would be taken for the next one
            raise BrokerError(_explained(str(error), self.connection)) from None
        if "error" in response:
            raise RefusedError(str(response["error"]))
        return response

    def _connect(self) -> None:
        self._conversation = Conversation(self.connection)
        self._listing, self._before, self.hot_problem = Listing(), None, None


def _explained(text: str, connection: "Connection") -> str:
    return text + SILENT if connection.level < 5 and text.startswith("No response") else text
