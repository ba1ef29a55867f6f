"""Measure the same load with each optimisation switched off in turn: on the index in this process, and on the broker.

    python -m perf.ablation --quick                         # only the index if there is no instrument
    python -m perf.ablation --parts broker --mosq .venv/bin/mosq --bench ../shared/bench
    python -m perf.ablation --report                        # write tables and plots again, from the measured rows
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from pathlib import Path

from perf.ablation import broker, index, report, rows
from perf.ablation.variants import AGAIN, DEFAULT, VARIANTS
from perf.micro import corpora


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and repetitions")
    parser.add_argument("--parts", help="parts to run, of index,broker")
    parser.add_argument("--sizes", help="numbers of filters in the index")
    parser.add_argument("--corpora", default=",".join(corpora.SHAPES), help="corpora for the index (default: all)")
    parser.add_argument("--scenarios", default=",".join(broker.SCENARIOS), help="for the broker (default: all)")
    parser.add_argument("--variants", help="variants to run, of " + ", ".join(v.name for v in VARIANTS))
    parser.add_argument("--reps", type=int)
    parser.add_argument("--seconds", type=float, default=2, help="seconds of each scenario (default: %(default)s)")
    parser.add_argument("--mosq", default=".venv/bin/mosq", help="command of the broker (default: %(default)s)")
    parser.add_argument("--bench", type=Path, default=Path(os.environ.get("MOSQ_BENCH", "../shared/bench")),
                        help="folder of the instrument")
    parser.add_argument("--out", type=Path, default=Path("build/ablation.jsonl"))
    parser.add_argument("--plots", type=Path, default=Path("perf/plots"))
    parser.add_argument("--no-plots", action="store_true", help="draw no plots, which need matplotlib")
    parser.add_argument("--report", action="store_true", help="only write the tables and plots of --out again")
    args = parser.parse_args()
    there = (args.bench / "compare.py").exists()
    parts = args.parts.split(",") if args.parts else ["index", "broker"] if there else ["index"]
    if not args.parts and not there:
        print(f"no compare.py in {args.bench}: measuring the index only", file=sys.stderr)
    names = args.variants.split(",") if args.variants else [v.name for v in VARIANTS]
    names = list(dict.fromkeys([DEFAULT, AGAIN, *names]))
    if unknown := set(names) - {v.name for v in VARIANTS}:
        parser.error(f"no such variant: {', '.join(sorted(unknown))}")
    if args.report:
        found = rows.read(args.out)
    else:
        sizes = index.QUICK_SIZES if args.quick else index.SIZES
        if args.sizes:
            sizes = [int(n) for n in args.sizes.split(",")]
        todo = []
        if "index" in parts:
            todo.append(index.run(sizes, args.corpora.split(","), names, args.reps or (2 if args.quick else 3)))
        if "broker" in parts:
            reps, seconds = (1, 1) if args.quick else (3, args.seconds)
            todo.append(broker.run(args.bench, str(Path(args.mosq).absolute()), args.scenarios.split(","), names,
                                   args.reps or reps, seconds))
        found = rows.write(args.out, itertools.chain(*todo))
    args.out.with_suffix(".md").write_text(report.report(found))
    if not args.no_plots:
        report.plots(found, args.plots)
    print(f"tables: {args.out.with_suffix('.md')}", file=sys.stderr)


if __name__ == "__main__":
    main()
