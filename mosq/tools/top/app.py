"""`mosq top` on a terminal, with textual: head lines, one table, a line of keys. Uses the 16 colours of the terminal
and no mouse, draws nothing between two readings, and sends only lines that changed.

The readings come from a thread (poller.py) as messages.
"""

import asyncio
import signal
import time
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.app import App
from textual.binding import Binding
from textual.message import Message
from textual.widgets import Input, Static

from mosq.tools.top import summary
from mosq.tools.top.dialogs import Page, Question, client_lines, help_lines
from mosq.tools.top.grid import Grid
from mosq.tools.top.poller import Poller
from mosq.tools.top.texts import fitted, safe

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from mosq.tools.top.broker import Broker
    from mosq.tools.top.reading import Reading
    from mosq.tools.top.views import View

INTERVALS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
KEYS = "q end  ? keys  / filter  < > sort  r turn  enter inspect  k kick  tab  p pause"
NEWS_S = 5.0
CSS = """
Screen { background: ansi_default; color: ansi_default; }
#head { height: 4; } #status { height: 1; } #footer { height: 1; } Grid { height: 1fr; }
#filter { height: 1; border: none; padding: 0; background: ansi_default; color: ansi_default; display: none; }
ModalScreen { align: center middle; background: ansi_default; }
#question { width: 72; max-width: 100%; height: auto; border: ascii ansi_red; padding: 1 2; }
#title, #keys { height: 1; } #lines { height: 1fr; }
"""


class Read(Message):
    """A reading has come."""

    def __init__(self, reading: "Reading") -> None:
        super().__init__()
        self.reading = reading


class Failed(Message):
    """A request has failed, or has an outcome that a line reports."""

    def __init__(self, text: str, is_error: bool = True) -> None:
        super().__init__()
        self.text, self.is_error = text, is_error


class Inspected(Message):
    """The data of a client has come."""

    def __init__(self, client_id: str, lines: list[str]) -> None:
        super().__init__()
        self.client_id, self.lines = client_id, lines


class TopApp(App[None]):
    """The screen. `first`: the place of the first table."""

    ENABLE_COMMAND_PALETTE = False
    CSS = CSS
    BINDINGS: ClassVar[list[Any]] = [
        ("q,ctrl+c", "quit", "end"), ("question_mark,f1", "keys", "keys"),
        # before the table gets the key, so that the text that follows it at once goes to the filter
        Binding("slash", "filter", "filter", priority=True),
        ("less_than_sign,left", "sort(-1)", "sort"), ("greater_than_sign,right", "sort(1)", "sort"),
        ("r", "turn", "turn"), ("enter", "inspect", "inspect"), ("k", "kick", "kick"), ("p,space", "pause", "pause"),
        ("plus,equals_sign", "interval(1)", "longer"), ("minus", "interval(-1)", "shorter"),
        Binding("tab", "next(1)", priority=True), Binding("shift+tab", "next(-1)", priority=True),
        ("o", "offline", "offline"), ("up", "move(-1)", ""), ("down", "move(1)", ""), ("pageup", "page(-1)", ""),
        ("pagedown", "page(1)", ""), ("home", "move(-1000000)", ""), ("end", "move(1000000)", ""),
        *((str(n + 1), f"view({n})", "") for n in range(6)),
    ]

    def __init__(self, broker: "Broker", tables: "list[View]", first: int, interval_s: float, filter: str) -> None:
        super().__init__(ansi_color=True)
        self.animation_level = "none"
        self.broker, self.tables, self.at = broker, tables, first
        self.filter_text, self.with_offline = filter, True
        self.reading: Reading | None = None
        self.trouble, self.news = "", ""        # an error until the next reading; a note for NEWS_S
        self._news_until_s = 0.0
        self.read_at = ""
        self.poller = Poller(broker, interval_s, lambda reading: self._post(Read(reading)),
                             lambda text: self._post(Failed(text)),
                             lambda text: self._post(Failed(f"Not done: {text}.", is_error=False)))

    def _post(self, message: Message) -> None:
        if self.is_running:
            self.post_message(message)

    @property
    def view(self) -> "View":
        """Return the table that is shown."""
        return self.tables[self.at]

    @property
    def grid(self) -> Grid:
        """Return the widget of the table."""
        return self.screen_stack[0].query_one(Grid)

    def compose(self) -> "ComposeResult":
        """Compose the main screen."""
        yield Static(id="head", markup=False)
        yield Static(id="status", markup=False)
        yield Grid(self.view)
        field = Input(id="filter", placeholder="text in a name or address; enter: done, esc: no filter",
                      select_on_focus=False)
        field.cursor_blink = False
        yield field
        yield Static(Text(KEYS, style="reverse"), id="footer", markup=False)

    def on_mount(self) -> None:
        """Begin to read."""
        self.grid.focus()
        if not self.is_headless:
            for number in (signal.SIGTERM, signal.SIGHUP):      # the terminal is restored then, too
                asyncio.get_running_loop().add_signal_handler(number, self.exit)
        self.poller.start()
        self.draw()

    def on_unmount(self) -> None:
        """End the thread."""
        self.poller.stop()

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    # ------------------------------------------------------------ messages of the thread

    def on_read(self, message: Read) -> None:
        """Show a reading."""
        self.reading, self.trouble = message.reading, ""
        self.read_at = time.strftime("%H:%M:%S")
        if time.monotonic() >= self._news_until_s:
            self.news = ""
        self.draw()

    def on_failed(self, message: Failed) -> None:
        """Show a line."""
        if message.is_error:
            self.trouble = message.text
        else:
            self.news, self._news_until_s = message.text, time.monotonic() + NEWS_S
        self.draw()

    def on_inspected(self, message: Inspected) -> None:
        """Show the page of a client."""
        def ended(wish: str | None) -> None:
            if wish == "kick":
                self._ask_and_kick(message.client_id)
            elif wish == "again":
                self._inspect(message.client_id)

        if len(self.screen_stack) == 1:
            self.push_screen(Page(f"Client {safe(message.client_id)}", message.lines, can_kick=True), ended)

    # ------------------------------------------------------------ drawing

    def draw(self) -> None:
        """Show the reading with the chosen table, order and filter."""
        base = self.screen_stack[0]
        width = base.size.width
        rows = [] if self.reading is None else self.view.rows(self.reading, self.filter_text, self.with_offline)
        if self.reading is not None:
            head = summary.lines(self.reading, self.broker.connection.url, width)
            base.query_one("#head", Static).update(Text("\n".join(head), no_wrap=True))
        style = "bold red" if self.trouble else "bold yellow" if self.poller.is_paused or self.news else "bold"
        status = Text(fitted(self._status(len(rows)), width), style=style, no_wrap=True)
        base.query_one("#status", Static).update(status)
        self.grid.show(self.view, rows, self._note())

    def _status(self, n_rows: int) -> str:
        if self.trouble:
            return safe(self.trouble)
        if self.news:
            return safe(self.news)
        words = [f"{n_rows} {self.view.title}"]
        if self.filter_text:
            words.append(f"with '{safe(self.filter_text)}'")
        if not self.with_offline and self.view.place is None:
            words.append("connected ones only")
        if self.view.place is None and self.reading is not None:
            if self.reading.is_cut:
                words.append("more at the broker: --prefix")
            elif not self.reading.is_whole:
                words.append("list still incomplete")
        words.append("PAUSED" if self.poller.is_paused else f"every {self.poller.interval_s:g} s")
        return ", ".join([*words, self.read_at])

    def _note(self) -> str:
        if self.reading is None:
            return "Waiting for the broker."
        if self.view.place is not None and self.broker.hot_problem is not None:
            return safe(self.broker.hot_problem)
        return "No row has this text." if self.filter_text else "Nothing yet."

    # ------------------------------------------------------------ keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Ignore the keys of the table while another screen or the filter has them."""
        return action == "quit" or (len(self.screen_stack) == 1 and not self._is_typing())

    def _is_typing(self) -> bool:
        return isinstance(self.focused, Input)

    def action_move(self, steps: int) -> None:
        """Choose another row."""
        self.grid.move(steps)

    def action_page(self, direction: int) -> None:
        """Choose a row a page away."""
        self.grid.move(direction * self.grid.page)

    def action_sort(self, step: int) -> None:
        """Sort by the column beside."""
        self.view.sort_by(self.view.sort + step)
        self.draw()

    def action_turn(self) -> None:
        """Turn the order round."""
        self.view.sort_by(self.view.sort)
        self.draw()

    def action_next(self, step: int) -> None:
        """Show another table."""
        self.action_view((self.at + step) % len(self.tables))

    def action_view(self, place: int) -> None:
        """Show this table."""
        self.at, self.news = place, ""
        self.draw()

    def action_offline(self) -> None:
        """Show or hide offline sessions."""
        self.with_offline = not self.with_offline
        self.draw()

    def action_pause(self) -> None:
        """Pause, or go on."""
        self.poller.is_paused = not self.poller.is_paused
        self.poller.wake()
        self.draw()

    def action_interval(self, step: int) -> None:
        """Take the next longer or shorter interval."""
        now = self.poller.interval_s
        others = [one for one in INTERVALS_S if (one > now if step > 0 else one < now)]
        if others:
            self.poller.interval_s = others[0] if step > 0 else others[-1]
            self.poller.wake()
        self.draw()

    def action_keys(self) -> None:
        """Show the keys."""
        self.push_screen(Page("Keys of mosq top", help_lines(self.view)))

    def action_filter(self) -> None:
        """Begin to type a filter."""
        field = self.query_one("#filter", Input)
        field.display = True
        field.value = self.filter_text
        self.screen.set_focus(field)            # field.focus() does it later

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the user types."""
        self.filter_text = event.value
        self.draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """End the typing."""
        self._end_filter()

    def on_key(self, event: "Any") -> None:
        """Remove the filter with escape."""
        if event.key == "escape" and len(self.screen_stack) == 1:
            self.filter_text = ""
            self._end_filter()

    def _end_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self.grid.focus()
        self.draw()

    # ------------------------------------------------------------ one client

    def _chosen_client(self) -> str | None:
        row, key = self.grid.chosen, self.view.id_key
        return None if row is None or key is None else str(row[key])

    def action_inspect(self) -> None:
        """Inspect the chosen client."""
        client_id = self._chosen_client()
        if client_id is not None:
            self._inspect(client_id)

    def _inspect(self, client_id: str) -> None:
        def job(broker: "Broker") -> None:
            self._post(Inspected(client_id, client_lines(*broker.client(client_id))))

        self.poller.do(job)

    def action_kick(self) -> None:
        """Kick the chosen client, after a question."""
        client_id = self._chosen_client()
        if client_id is not None:
            self._ask_and_kick(client_id)

    def _ask_and_kick(self, client_id: str) -> None:
        def job(broker: "Broker") -> None:
            broker.kick(client_id)
            self._post(Failed(f"Disconnected '{client_id}'.", is_error=False))
            self.poller.wake()

        def answered(yes: bool | None) -> None:
            if yes:
                self.poller.do(job)

        self.push_screen(Question(f"Disconnect the client '{safe(client_id)}'? Its session stays."), answered)
