"""Measure a broker with several workers (`cluster_local N`) beside one with one process.

    python -m perf.workers pairs            # CPU of a message within one worker, and across two
    python -m perf.workers tls              # CPU of a TLS handshake with 1 and 2 workers, and what they can make
    python -m perf.workers subscribe        # how soon the other workers know a new subscription
    python -m perf.workers routes           # memory of the filters of another worker
    python -m perf.workers peers            # 2 workers beside FlashMQ with 2 threads
    python -m perf.workers instructions --before DIR        # one process, and that of another checkout that is built
    python -m perf.workers --json perf/results/workers/pairs.json pairs     # keep the figures of one of these
    python -m perf.workers plot             # draw perf/plots/workers-*.svg from the kept figures

`python -m perf.results` then writes perf/RESULTS.md. Each module of this package explains its measurement.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from perf.kept import keep
from perf.lock import bench_lock
from perf.workers import report
from perf.workers.pairs import LOADS
from perf.workers.routes import KINDS

PERF = Path(__file__).parents[1]
KEPT, PLOTS = PERF / "results" / "workers", PERF / "plots"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m perf.workers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    what = parser.add_subparsers(dest="what", required=True)
    pairs = what.add_parser("pairs")
    pairs.add_argument("--loads", type=lambda text: text.split(";"), default=list(LOADS), help="separated by ;")
    pairs.add_argument("--rounds", type=int, default=5)
    pairs.add_argument("--pairs", type=int, default=100)
    pairs.add_argument("--seconds", type=float, default=2.0)
    pairs.add_argument("--rate", type=float, default=0.0, help="messages per second (default: as many as possible)")
    tls = what.add_parser("tls")
    tls.add_argument("--rounds", type=int, default=3)
    tls.add_argument("--count", type=int, default=100, help="full handshakes of each load generator")
    subscribe = what.add_parser("subscribe")
    subscribe.add_argument("--samples", type=int, default=2000, help="of each round")
    subscribe.add_argument("--rounds", type=int, default=3)
    routes = what.add_parser("routes")
    routes.add_argument("--sizes", type=lambda text: [int(one) for one in text.split(",")],
                        default=[100_000, 1_000_000], help="numbers of filters, separated by commas")
    routes.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS), help="separated by commas")
    peers = what.add_parser("peers")
    peers.add_argument("--peers", dest="folders", type=Path, action="append", default=[], help="folder with flashmq")
    peers.add_argument("--rounds", type=int, default=3)
    peers.add_argument("--seconds", type=float, default=1.5)
    instructions = what.add_parser("instructions")
    instructions.add_argument("--before", type=Path, required=True, help="the other checkout")
    instructions.add_argument("--messages", type=int, default=20_000)
    what.add_parser("plot")
    return parser.parse_args()


def main() -> None:
    given = vars(arguments())
    what, file = given.pop("what"), given.pop("json")
    if what == "plot":
        report.plot(KEPT, PLOTS)
        return
    with bench_lock():
        rows = importlib.import_module(f"perf.workers.{what}").measure(**given)
    if file is not None:
        keep(file, rows)


if __name__ == "__main__":
    main()
