"""Passes the broker's log lines to `logging.getLogger("mosq")`."""

import logging
import traceback

from mosq.config.model import Config
from mosq.log_types import ERROR, INFORMATION, LOG_ALL, NOTICE, WARNING
from mosq.server.settings import log_mask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from mosq.records import LogLine

logger = logging.getLogger("mosq")

# all other types (debug, subscribe, unsubscribe, ...) are DEBUG
_LEVELS = {ERROR: logging.ERROR, WARNING: logging.WARNING, NOTICE: logging.INFO, INFORMATION: logging.INFO}


def wanted(config: Config) -> int:
    """Return the types of log lines to make: those of log_type; without it, all if the logger accepts DEBUG."""
    verbose = not config.log_type and logger.isEnabledFor(logging.DEBUG)
    quiet = bool(config.log_dest) and all(dest == "none" for dest in config.log_dest)
    return LOG_ALL if verbose and not quiet else log_mask(config)


def write(lines: "Iterable[LogLine]") -> None:
    """Pass log lines of the data plane to the logger."""
    for line in lines:
        report(line.type, line.text)


def report(type_bit: int, text: str) -> None:
    """Pass one log line to the logger. Never raises."""
    try:
        logger.log(_LEVELS.get(type_bit, logging.DEBUG), "%s", text)
    except Exception:                       # raised by the program's filter or handler: the broker must go on
        if logging.raiseExceptions:         # as in Handler.handleError
            traceback.print_exc()
