"""The broker's log lines, given to `logging.getLogger("mosq")`."""

import logging
import traceback

from mosq.config.model import Config
from mosq.config.options import LOG_ALL, LOG_TYPES
from mosq.server.settings import log_mask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from mosq.records import LogLine

logger = logging.getLogger("mosq")

# the others (debug, subscribe, unsubscribe, ...) are DEBUG
_LEVELS = {LOG_TYPES["error"]: logging.ERROR, LOG_TYPES["warning"]: logging.WARNING, LOG_TYPES["notice"]: logging.INFO,
           LOG_TYPES["information"]: logging.INFO}


def wanted(config: Config) -> int:
    """The types of lines to make: what log_type says; without one, everything if the logger takes DEBUG."""
    verbose = not config.log_type and logger.isEnabledFor(logging.DEBUG)
    quiet = bool(config.log_dest) and all(dest == "none" for dest in config.log_dest)
    return LOG_ALL if verbose and not quiet else log_mask(config)


def write(lines: "Iterable[LogLine]") -> None:
    for line in lines:
        say(line.type, line.text)


def say(type_bit: int, text: str) -> None:
    try:
        logger.log(_LEVELS.get(type_bit, logging.DEBUG), "%s", text)
    except Exception:               # a filter's or handler's of the program, as Handler.handleError has it: who says
        if logging.raiseExceptions:         # this has more to do
            traceback.print_exc()
