"""The screens above the table: a question before a kick, the page of one client, the keys."""

from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from mosq.tools.ctl import show
from mosq.tools.top.texts import safe

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from mosq.tools.top.views import View

    Data = dict[str, Any]

KEYS = """\
q, Ctrl-C     end                         ?            these keys
up, down      choose a row                enter        inspect the chosen client
PgUp, PgDn    a page                      k            kick it, after a question
Home, End     first, last row             /            filter; esc: no filter
<, >          sort by the next column     r            turn the order round
tab, 1 to 6   the next table, this one    o            without offline sessions
p, space      pause                       +, -         longer, shorter interval

IN/S and OUT/S are the broker's estimates for hot clients. A ~ marks a cut text.
"""


class Question(ModalScreen[bool]):
    """Asks for yes or no; every other key than y means no."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> "ComposeResult":
        """Compose the question."""
        yield Static(Text(f"{self._text}\n\ny: yes    any other key: no"), id="question", markup=False)

    def on_key(self, event: "Any") -> None:
        """Take the answer."""
        event.stop()
        self.dismiss(event.key in ("y", "Y"))


class Page(ModalScreen[str | None]):
    """Shows lines of text, which may be scrolled. Its result is the key that ended it."""

    BINDINGS: ClassVar[list[Any]] = [("escape,q,enter", "end", "back"), ("k", "kick", "kick"),
                                     ("r", "again", "read again")]

    def __init__(self, title: str, lines: list[str], can_kick: bool = False) -> None:
        super().__init__()
        self._title, self._lines, self._can_kick = title, lines, can_kick

    def compose(self) -> "ComposeResult":
        """Compose the page."""
        keys = "esc: back   up down: scroll" + ("   k: kick   r: read again" if self._can_kick else "")
        yield Static(Text(self._title, style="reverse bold"), id="title", markup=False)
        with VerticalScroll(id="lines"):
            yield Static(Text("\n".join(self._lines)), markup=False)
        yield Static(Text(keys, style="reverse"), id="keys", markup=False)

    def on_mount(self) -> None:
        """Give the arrow keys to the text."""
        self.query_one("#lines").focus()

    def action_end(self) -> None:
        """Go back."""
        self.dismiss(None)

    def action_kick(self) -> None:
        """End with the wish to kick."""
        if self._can_kick:
            self.dismiss("kick")

    def action_again(self) -> None:
        """End with the wish to read again."""
        if self._can_kick:
            self.dismiss("again")


def client_lines(session: "Data", subscriptions: "Data") -> list[str]:
    """Return a client with its queue and subscriptions; every character is safe."""
    try:
        lines = [*show.session({"client": session}), "", f"Subscriptions ({subscriptions.get('totalCount', 0)}):",
                 *show.subscriptions(subscriptions)]
    except (KeyError, TypeError, ValueError, AttributeError):
        lines = ["The broker's answer has an unexpected form."]
    return [safe(line) for line in lines]


def help_lines(view: "View") -> list[str]:
    """Return the keys, and the columns of a table."""
    return [*KEYS.splitlines(), "", f"Columns of {view.title}:",
            *(f"  {one.name:<9}{one.help}" for one in view.columns)]
