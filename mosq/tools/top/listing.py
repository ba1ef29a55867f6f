"""The list of a broker's clients, page by page. A pass over all clients may take several turns; until it ends, rows of
the pass before stay. Bounds: CLIENTS_MAX rows, and for each turn a share of the time between two turns.
"""

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Row = dict[str, Any]
    Page = Callable[[int, int], dict[str, Any]]

PAGE = 500                      # clients of one request; a page has some 150 kB
CLIENTS_MAX = 20_000            # rows that are kept
PAGES_MAX = 4000                # requests of one pass, also if a filter leaves their pages empty
SHARE = 0.1                     # of the time between two turns: the broker answers no list for the rest of it


class Listing:
    """The rows by client id, in the order of the last pass."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.is_complete = False        # at least one pass has ended
        self.is_cut = False             # the broker has more than CLIENTS_MAX clients
        self.ended_s = 0.0              # end of the last pass, by the monotonic clock
        self._new: dict[str, Row] = {}
        self._cursor = self._pages = 0

    def turn(self, page: "Page", interval_s: float) -> bool:
        """Ask for pages until the pass ends or the share of the interval is used; at least for one page. Return
        whether the pass has ended. `page` takes the number of clients and the cursor, and returns the broker's data."""
        until_s = time.monotonic() + SHARE * interval_s
        while True:
            data = page(PAGE, self._cursor)
            self._take(data)
            if self._cursor == 0:
                return True
            if time.monotonic() >= until_s:
                return False

    def _take(self, data: "Row") -> None:
        for row in data["clients"]:
            self._new[row["clientid"]] = row
        self._cursor = data["cursor"]
        self._pages += 1
        has_room = len(self._new) < CLIENTS_MAX and self._pages < PAGES_MAX
        if self._cursor and has_room:
            self.rows.update(self._new)         # rows of the pass before, until this pass ends
            return
        self.rows, self._new = self._new, {}
        self.is_complete, self.is_cut = True, bool(self._cursor)
        self._cursor, self._pages, self.ended_s = 0, 0, time.monotonic()
