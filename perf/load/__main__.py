"""Run a load test with locust against a fresh mosq or another broker (`make load`, docs/load.md).

Other arguments go to locust: --qos 2, --size 1000, --rate 10, --mqtt 5 ...
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from perf.load.driver import Plan, run
from perf.load.options import Settings


def main() -> int:
    parser = argparse.ArgumentParser(prog="dev/load", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=_positive, default=50, help="concurrent users of locust (default: %(default)s)")
    parser.add_argument("--seconds", type=_positive, default=15, help="duration of the test (default: %(default)s)")
    parser.add_argument("--scenario", default="", help="telemetry,commands,chat,offline,storm (default: all)")
    parser.add_argument("--broker", default="", help="URL, such as mqtt://host:1883 (default: a fresh mosq)")
    parser.add_argument("--workers", type=_positive, default=1, help="processes of locust (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("build/load"), help="for the results (default: %(default)s)")
    parser.add_argument("--ui", action="store_true", help="show locust's page")
    parser.add_argument("--port", type=int, default=0, help="port of locust's page (default: a free one)")
    args, rest = parser.parse_known_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return run(Plan(args.users, args.seconds, args.scenario.replace(",", " ").split(), args.broker, args.workers,
                    args.port if args.ui else None, args.out.absolute(), rest, _witness(rest)))


def _witness(rest: list[str]) -> Settings:
    """Return the settings for the witness's login, from the arguments for locust."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--username", default=os.environ.get("MOSQ_LOAD_USERNAME", ""))
    parser.add_argument("--password", default=os.environ.get("MOSQ_LOAD_PASSWORD", ""))
    parser.add_argument("--mqtt", default="3.1.1")
    parser.add_argument("--prefix", default="locust")
    parser.add_argument("--cafile", default="")
    parser.add_argument("--insecure", action="store_true")
    return Settings(**vars(parser.parse_known_args(rest)[0]))


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
