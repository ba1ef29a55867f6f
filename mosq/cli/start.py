"""The entry point of the `mosq` command. The broker must listen within 30 ms, and `click` takes 35, so this module
parses a plain start of a broker itself. All other command lines (help, subcommands, usage errors, spellings such
as `-vc FILE`) go to `mosq.cli.commands`."""

import sys

EXIT_CONFIG = 3
EXIT_NOT_BUILT = 1
WORKERS_MAX = 64
FLAGS = {"-d": "background", "--daemon": "background", "-q": "quiet", "--quiet": "quiet", "-v": "verbose",
         "--verbose": "verbose", "--compat": "compat", "--test-config": "test_config"}

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.config.model import Config
    from mosq.server.signals import Signals


class Start:
    """The parameters of a broker's start from the command line."""

    def __init__(                       # parameters: a record; one for each option of the command line
                 self, config_file: str | None = None, ports: tuple[int, ...] = (), background: bool = False,
                 quiet: bool = False, verbose: bool = False, overrides: tuple[str, ...] = (),
                 compat: bool = False, tls_keylog: str | None = None, test_config: bool = False) -> None:
        self.config_file, self.ports = config_file, ports
        self.overrides = overrides      # configuration lines that are read after the file
        self.tls_keylog = tls_keylog
        self.background, self.quiet, self.verbose, self.compat = background, quiet, verbose, compat
        self.test_config = test_config


def plain_start(arguments: list[str]) -> Start | None:
    """Parse a plain command line; return None if `click` must parse it."""
    start = Start()
    rest = iter(arguments)
    for argument in rest:
        if argument in FLAGS:
            setattr(start, FLAGS[argument], True)
            continue
        value = next(rest, "")
        if argument in ("-c", "--config-file") and value and not value.startswith("-"):
            start.config_file = value
        elif argument in ("-p", "--port") and _is_number(value, 65535):
            start.ports += (int(value),)
        elif argument == "--workers" and _is_number(value, WORKERS_MAX):
            start.overrides += (f"cluster_local {value}",)
        else:
            return None
    return None if start.test_config and start.config_file is None else start


def _is_number(text: str, most: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) <= most


def run(start: Start) -> int:
    """Run a broker until it is stopped; return the exit status."""
    from mosq.server.process import open_standard_descriptors
    from mosq.server.signals import Signals

    open_standard_descriptors()
    with Signals() as taken:
        return _run(start, taken)


def _run(start: Start, taken: "Signals") -> int:
    from mosq.built import problem
    from mosq.config.errors import ConfigError
    from mosq.config.parser import load_config

    def load() -> "Config":
        config = load_config(start.config_file, start.ports, start.overrides)
        config.tls_keylog = start.tls_keylog
        config.compat |= start.compat
        return config

    wrong = problem()
    if wrong:
        print(wrong, file=sys.stderr)
        return EXIT_NOT_BUILT
    try:
        config = load()
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_CONFIG
    if config.cluster is not None:
        from mosq.server.node.parent import serve_node

        return serve_node(config, taken=taken, quiet=start.quiet, verbose=start.verbose, background=start.background,
                          load=load)
    if config.cluster_local > 1:
        from mosq.server.workers.parent import serve_workers

        return serve_workers(config, taken=taken, quiet=start.quiet, verbose=start.verbose,
                             background=start.background, load=load)
    from mosq.server.control import serve

    return serve(config, taken=taken, quiet=start.quiet, verbose=start.verbose, background=start.background,
                 load=load)
