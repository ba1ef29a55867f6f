"""The table on the terminal: draws only the rows that are visible, and sends only lines that changed. Names are
segments of plain text, so markup in them has no effect.
"""

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from textual import events

    from mosq.tools.top.views import View

    Row = dict[str, Any]

HEAD = Style(reverse=True, bold=True)
CHOSEN = Style(reverse=True)
PLAIN = Style()
FAINT = Style(dim=True)


class Grid(Widget, can_focus=True):
    """Rows of a view. The choice stays with its row, wherever the row is sorted to, from the first step on."""

    def __init__(self, view: "View") -> None:
        super().__init__()
        self.view = view
        self.rows: list[Row] = []
        self.note = ""                      # shown in place of rows
        self.place, self.first = 0, 0       # the chosen row; the first visible one
        self._name: str | None = None       # the chosen row by name; None: whichever is first
        self._drawn: list[tuple[str, Style]] = []

    def show(self, view: "View", rows: "list[Row]", note: str) -> None:
        """Show rows; the chosen one stays chosen if it is still there."""
        if view is not self.view:
            self.view, self._name, self.place, self.first = view, None, 0, 0
        self.rows, self.note = rows, note
        if self._name is not None:
            for place, row in enumerate(rows):
                if view.name_of(row) == self._name:
                    self.place = place
                    break
        self._draw()

    @property
    def chosen(self) -> "Row | None":
        """Return the chosen row; None without rows."""
        return self.rows[self.place] if self.place < len(self.rows) else None

    def move(self, steps: int) -> None:
        """Choose another row."""
        if not self.rows:
            return
        self.place = min(max(self.place + steps, 0), len(self.rows) - 1)
        self._name = self.view.name_of(self.rows[self.place]) if self.place or steps > -len(self.rows) else None
        self._draw()

    @property
    def page(self) -> int:
        """Return the number of rows that are visible."""
        return max(self.size.height - 1, 1)

    def on_resize(self, event: "events.Resize") -> None:
        self._draw()

    def _draw(self) -> None:
        """Compute the visible lines; refresh those that changed."""
        width, height = self.size
        if not width or not height:
            return
        self.place = min(self.place, max(len(self.rows) - 1, 0))
        self.first = min(max(self.first, self.place - self.page + 1, 0), self.place)
        self.first = max(min(self.first, len(self.rows) - self.page), 0)
        fit = self.view.fit(width)
        lines = [(self.view.head(fit).ljust(width)[:width], HEAD)]
        for place, row in enumerate(self.rows[self.first:self.first + self.page], self.first):
            is_offline = self.view.place is None and not row.get("connected")
            style = CHOSEN if place == self.place else FAINT if is_offline else PLAIN
            lines.append((self.view.line(row, fit), style))
        if not self.rows:
            lines += [(text, PLAIN) for text in wrapped(self.note, width)]
        lines += [("", PLAIN)] * (height - len(lines))
        before, self._drawn = self._drawn, lines[:height]
        if len(before) != height:
            self.refresh()
            return
        changed = [Region(0, y, width, 1) for y in range(height) if before[y] != lines[y]]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        """Return one line for textual."""
        text, style = self._drawn[y] if y < len(self._drawn) else ("", PLAIN)
        return Strip([Segment(text, style)]).adjust_cell_length(self.size.width, style)


def wrapped(text: str, columns: int) -> list[str]:
    """Return a text as lines of at most this width."""
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= columns:
            lines[-1] += f" {word}"
        else:
            lines.append(word[:columns])
    return lines
