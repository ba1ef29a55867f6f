"""Passes the data plane's requests to the component that answers them: bridges, control topics, access. The control
plane of the command and that of an embedded broker use it.

Invariant: an error in one component is logged and stops neither the other components nor the thread. Imported before
the broker listens, so it imports almost nothing.
"""

from mosq.log_types import ERROR
from mosq.records import BridgeEvent, ClientNotice, CommandRequest, unasked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.engine import Engine
    from mosq.records import Request
    from mosq.server.access import Access
    from mosq.server.admin.control import ControlTopics
    from mosq.server.bridge.bridges import Bridges

    Requests = list[Request]
    Report = Callable[[int, str], None]



def hand_out(requests: "Requests", engine: "Engine", report: "Report", bridges: "Bridges | None",
             topics: "ControlTopics", access: "Access | None") -> None:
    """Distribute the requests. Components that have work without a request get their turn too."""
    if bridges is not None:
        try:
            bridges.take([request for request in requests if isinstance(request, BridgeEvent)])
            bridges.serve()
        except Exception as error:
            report(ERROR, f"Error: The bridges' work failed: {type(error).__name__}: {error}.")
        requests = [request for request in requests if not isinstance(request, BridgeEvent)]
    try:
        answers, requests = topics.take(requests)
        if answers:
            engine.answer(answers)
    except Exception as error:
        report(ERROR, f"Error: Requests on $CONTROL/ topics could not be answered: {type(error).__name__}.")
        requests = [request for request in requests if not isinstance(request, CommandRequest)]
    rest = [request for request in requests if not isinstance(request, (BridgeEvent, CommandRequest))]
    try:
        if access is not None and rest:
            access.take(rest)
        elif rest:              # sent before a reload, after which no security needs access
            engine.answer([unasked(request) for request in rest if not isinstance(request, ClientNotice)])
    except Exception as error:      # auth_timeout refuses these clients; the broker continues
        report(ERROR, f"Error: {len(rest)} auth requests could not be handled: {type(error).__name__}.")


def tick(access: "Access", report: "Report") -> None:
    """Do the periodic work of `access`, once a second."""
    try:
        access.tick()
    except Exception as error:
        report(ERROR, f"Error: The periodic work of access control failed: {type(error).__name__}.")
