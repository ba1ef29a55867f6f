"""What the data plane asks, given to those who answer: bridges, control topics, access. Knows who they are; not what
they do. Of the command's control plane and of that of an embedded broker.

Invariant: one that fails is told of in the log, and takes neither the others nor the thread with it.
Imported before the broker listens: imports next to nothing itself.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.engine import Engine
    from mosq.server.access import Access
    from mosq.server.admin.control import ControlTopics
    from mosq.server.bridge.links import Links

    Requests = list[tuple[Any, ...]]
    Say = Callable[[int, str], None]

ERROR = 1                       # as mosq.config.options.LOG_TYPES has it


def hand_out(requests: "Requests", engine: "Engine", say: "Say", links: "Links | None", topics: "ControlTopics",
             access: "Access | None") -> None:
    """Also those who have something to do without a request."""
    if links is not None:
        try:
            links.take([request for request in requests if request[0] == "link"])
            links.serve()
        except Exception as error:
            say(ERROR, f"Error: What bridges do failed: {type(error).__name__}: {error}.")
        requests = [request for request in requests if request[0] != "link"]
    try:
        answers, requests = topics.take(requests)
        if answers:
            engine.answer(answers)
    except Exception as error:
        say(ERROR, f"Error: What was asked below $CONTROL/ could not be answered: {type(error).__name__}.")
        requests = [request for request in requests if request[0] != "control"]
    try:
        if access is not None and requests:
            access.take(requests)
        elif requests:              # asked before a reload, after which nobody needs to
            from mosq.server.access import refusal

            engine.answer([refusal(request) for request in requests if request[0] != "event"])
    except Exception as error:      # who is asked about is refused by auth_timeout; the broker goes on
        say(ERROR, f"Error: {len(requests)} questions about access could not be taken: {type(error).__name__}.")


def tick(access: "Access", say: "Say") -> None:
    try:
        access.tick()
    except Exception as error:
        say(ERROR, f"Error: What access does once a second failed: {type(error).__name__}.")
