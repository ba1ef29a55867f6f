"""`mosq top` on the command line."""

import shutil
import sys

import click

from mosq.tools.ctl.connection import ConnectionProblemError
from mosq.tools.ctl.options import connection_of, merged, session_options
from mosq.tools.ctl.terminal import EXIT_FAILED, EXIT_OK, secret
from mosq.tools.extras import install_advice
from mosq.tools.terminal import silence_broken_pipe
from mosq.tools.top import views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mosq.tools.ctl.connection import Connection
    from mosq.tools.top.broker import Broker


SETTINGS = {"help_option_names": ["--help"], "max_content_width": 100}
OWN = ("once", "as_json", "interval", "limit", "view", "sort", "filter", "prefix", "user")
RATE_S = 1.0                    # time over which --once and --json measure rates
COLUMNS = 120                   # of a table that goes to a file or a pipe
EPILOG = """\b
Examples:
  mosq top                                          the broker of this machine
  mosq top -h broker.example -u ann                 another one; prompts for the password
  mosq top --unix /run/mosq.sock -n 5               every 5 seconds, over a unix socket
  mosq top --prefix sensor-                         only clients whose ids begin so, also of a million
  mosq top --once --sort queue --limit 10           one table as text: the longest queues
  mosq top --json | jq '.rates'                     the same as JSON; neither needs a terminal
  mosq top --once --view topics                     the hot topics

\b
Keys: ? shows them. The broker needs `enable_control_api true`, and the user a rule that allows
$CONTROL/mosq/broker/v1. All of it: docs/top.md.

\b
Exit status:
  0  ended by q or Ctrl-C, or the table is printed
  1  no broker there, login refused, not allowed, no terminal, or textual is missing
  3  error in the command line
"""
NO_TERMINAL = ("This is no terminal: expected one at the standard input and output. `mosq top --once` prints one "
               "table, `mosq top --json` the same as JSON.")


@click.command("top", epilog=EPILOG, context_settings=SETTINGS)
@click.option("--once", is_flag=True, help="Print one table as text, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print one table as a line of JSON, and end.")
@click.option("-n", "--interval", type=click.FloatRange(0.5, 3600), default=2.0, show_default=True, metavar="S",
              help="Seconds between two readings.")
@click.option("--view", type=click.Choice([one.title for one in views.made()]), default="clients", show_default=True,
              help="The first table.")
@click.option("--sort", metavar="COLUMN", help="Sort by this column, such as queue or client.")
@click.option("--filter", default="", metavar="TEXT", help="Show rows with this text in a name or address.")
@click.option("--limit", type=click.IntRange(1, 20000), default=100, show_default=True, metavar="N",
              help="Rows of --once and --json.")
@click.option("--prefix", metavar="TEXT", help="Ask the broker only for clients whose ids begin with this text.")
@click.option("--user", metavar="USER", help="Ask the broker only for clients of this user.")
@session_options
@click.pass_context
def top(context: click.Context, /, **given: "Any") -> int:
    """Show a running broker and its clients: rates, queues, drops, hot topics; sort, filter, inspect, kick."""
    if given["once"] and given["as_json"]:
        raise click.UsageError("--once and --json cannot be used together.")
    tables = views.made()
    view = next(one for one in tables if one.title == given["view"])
    if given["sort"] is not None and not view.sort_by_name(given["sort"]):
        raise click.UsageError(f"The table of {view.title} has no column {given['sort']!r}; expected one of "
                               f"{views.names(view.columns)}.")
    is_live = not given["once"] and not given["as_json"]
    if is_live and not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _failed(NO_TERMINAL)
    if is_live and not _has_textual():
        return _failed(f"`mosq top` needs textual, which is not installed: {install_advice('top')}. `mosq top --once` "
                       "and `--json` work without it.")
    connection = _connection(context, given)
    filters = {key: given[name] for key, name in (("prefix", "prefix"), ("username", "user")) if given[name]}
    return _run(connection, filters, tables, view, given)


def _has_textual() -> bool:
    from importlib.util import find_spec

    return find_spec("textual") is not None


def _connection(context: click.Context, given: "dict[str, Any]") -> "Connection":
    taken = {name: value for name, value in given.items() if name not in OWN}
    connection = connection_of({**merged(context, taken), "qos": 1})
    if connection.username is not None and connection.password is None:
        connection.password = secret(f"Password for {connection.username}: ")
    return connection


def _run(connection: "Connection", filters: "dict[str, Any]", tables: "list[views.View]", view: "views.View",
         given: "dict[str, Any]") -> int:
    from mosq.tools.ctl.conversation import NoAnswerError
    from mosq.tools.top.broker import Broker, BrokerError, RefusedError

    broker = Broker(connection, filters)
    try:
        if given["once"] or given["as_json"]:
            return _once(broker, view, given)
        broker.read_stats()             # an error at the start is a line in the terminal, not a screen
        return _live(broker, tables, view, given)
    except KeyboardInterrupt:
        return EXIT_OK
    except BrokenPipeError:
        silence_broken_pipe()
        return EXIT_OK
    except (ConnectionProblemError, NoAnswerError, BrokerError, RefusedError) as error:
        return _failed(str(error))
    finally:
        broker.close()


def _once(broker: "Broker", view: "views.View", given: "dict[str, Any]") -> int:
    from mosq.tools.top import once

    reading = once.read(broker, RATE_S)
    url = broker.connection.url
    if view.place is not None and broker.hot_problem is not None and not (reading.hot or {}).get(view.place):
        return _failed(broker.hot_problem)
    if given["as_json"]:
        click.echo(once.document(reading, view, url, given["limit"], given["filter"]))
        return EXIT_OK
    columns = shutil.get_terminal_size((COLUMNS, 24)).columns if sys.stdout.isatty() else COLUMNS
    for line in once.text(reading, view, url, columns, given["limit"], given["filter"]):
        click.echo(line.encode(sys.stdout.encoding or "utf-8", "backslashreplace").decode(sys.stdout.encoding))
    return EXIT_OK


def _live(broker: "Broker", tables: "list[views.View]", view: "views.View", given: "dict[str, Any]") -> int:
    from mosq.tools.top.app import TopApp

    app = TopApp(broker, tables, tables.index(view), given["interval"], given["filter"])
    app.run(mouse=False)
    return EXIT_OK if app.return_code in (None, 0) else EXIT_FAILED


def _failed(text: str) -> int:
    click.echo(f"Error: {text}", err=True)
    return EXIT_FAILED
