"""Run the performance lab: suites of `mosq bench` over mosq, mosq with optimisations off, and other brokers.

Each run has a fresh broker on one core and the load on another; the brokers take turns. Results go to a folder, from
which `mosq bench report DIR` makes a page.
"""

from __future__ import annotations

import argparse
import datetime
import os
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from perf.lab import figures
from perf.lab.folder import Folder, FolderError
from perf.lab.peers import MOSQ, PEERS, ROOT, Found, find
from perf.lab.plan import SUITES, VARIANTS_OF_MOSQ, Load, loads
from perf.lab.run import Entry, How, Lab

DESCRIPTORS_MAX = 200_000       # limit: a broker that prepares for a million files would be another measurement
EXIT_OK, EXIT_FAILED, EXIT_NOT_EXACT, EXIT_USAGE = 0, 1, 2, 3
EPILOG = """examples:
  python -m perf.lab paper                                   the paper's four tests: half an hour
  python -m perf.lab paper --quick --tests paper-1,paper-4   in a minute or two
  python -m perf.lab bench vendors --dir build/lab/today     two suites into one folder
  python -m perf.lab bench --brokers mosq,mosquitto,flashmq --peers ~/peers
  python -m perf.lab cost --tests cost-paced                 relay, mosq and all other brokers
  python -m perf.lab bench --tests pairs --brokers 'mosq,mosq:plain,mosq:no pool' --reps 5
  python -m perf.lab vendors --brokers mosq --at cloud=broker.example:1883
  python -m perf.lab --list                                  suites, tests, brokers that are here

brokers: a family (mosquitto: the one found first), a name (mosquitto-2.0.11), mosq:VARIANT, or all. The lab looks on
PATH, then below --peers or MOSQ_PEERS. The password of --username: MOSQ_BENCH_PASSWORD.

exit status: 0 all done; 1 some runs are not complete (kept, and marked); 2 mosq lost, doubled or reordered messages;
3 an error in the command line"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser("python -m perf.lab", description=__doc__, epilog=EPILOG,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("suites", nargs="*", metavar="SUITE", help=f"suites to run, of {', '.join(SUITES)}")
    add("--list", action="store_true", help="list suites, tests and brokers, and measure nothing")
    add("--dir", type=Path, help="folder of results; new ones are added (default: build/lab/SUITE-TIME)")
    add("--brokers", help="brokers to measure (default: those that --list shows for the suite)")
    add("--peers", type=Path, action="append", default=[], metavar="DIR", help="folder of other brokers; may repeat")
    add("--at", action="append", default=[], metavar="NAME=HOST:PORT", help="running broker; may repeat")
    add("--username", help="user name at all brokers; %%i stands for the number of the client")
    add("--tests", help="run only these tests, separated by commas")
    add("--quick", action="store_true", help="fewer cases, smaller numbers, one repetition")
    add("--scale", type=float, default=1.0, help="factor for numbers of messages and clients")
    add("--reps", type=int, help="repetitions")
    add("--seconds", type=float, help="duration of tests that are not counted in messages (default: 1.5; --quick: 0.7)")
    add("--cpu", type=int, help="core of the load (default: the last)")
    add("--broker-cpu", type=int, help="core of the brokers (default: the first)")
    add("--timeout", type=float, default=600.0, help="most seconds of a run (default: %(default)g)")
    add("--patience", type=float, default=60.0, help="runs of more seconds are not repeated (default: %(default)g)")
    add("--no-report", action="store_true", help="make no page at the end")
    return made


def main(arguments: list[str] | None = None) -> int:
    made = parser()
    made.exit_on_error = True
    try:
        args = made.parse_args(arguments)
    except SystemExit as left:
        return EXIT_USAGE if left.code else EXIT_OK
    folders = args.peers or [Path(one) for one in os.environ.get("MOSQ_PEERS", "").split(os.pathsep) if one]
    found = find(folders)
    descriptors = raised_descriptors()
    if args.list:
        list_all(found, descriptors)
        return EXIT_OK
    try:
        if not args.suites:
            raise UsageError(f"which suite? expected one or more of {', '.join(SUITES)}")
        chosen = chosen_loads(args, descriptors)
        entries = chosen_entries(args, found)
        how = chosen_how(args)
        given = arguments if arguments is not None else sys.argv[1:]
        folder = Folder(args.dir or default_folder(args.suites), "; ".join(SUITES[name].title for name in args.suites),
                        shlex.join(["python", "-m", "perf.lab", *given]), measurement_options(args, how))
    except (UsageError, FolderError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED
    lab = Lab(folder, chosen, entries, how)
    print_before(lab, descriptors)
    why = lab.perform()
    folder.close(why, lab.left_out)
    print_after(lab, why)
    if not args.no_report:
        report(folder.path)
    if why:
        return EXIT_FAILED
    return EXIT_OK if all(run["exact"] for run in lab.runs if run["run"]["broker"] == MOSQ.family) else EXIT_NOT_EXACT


class UsageError(Exception):
    """State an error in the command line."""


# ---------------------------------------------------------------- the chosen runs

def chosen_loads(args: argparse.Namespace, descriptors: int) -> list[Load]:
    """Return the loads of the chosen suites and tests. Raises UsageError."""
    if unknown := [name for name in args.suites if name not in SUITES]:
        raise UsageError(f"no such suite: {', '.join(unknown)}; expected {', '.join(SUITES)}")
    if not 0 < args.scale <= 100:
        raise UsageError("--scale: expected a number above 0 and up to 100")
    if any(value is not None and value <= 0 for value in (args.seconds, args.reps, args.timeout)):
        raise UsageError("--seconds, --reps, --timeout: expected a number above 0")
    found = [load for name in dict.fromkeys(args.suites)
             for load in loads(SUITES[name], seconds_of(args), descriptors, quick=args.quick, scale=args.scale)]
    if args.tests:
        wanted = args.tests.split(",")
        if unknown := [name for name in wanted if name not in {load.test.id for load in found}]:
            raise UsageError(f"no such test: {', '.join(unknown)}; --list shows the tests")
        found = [load for load in found if load.test.id in wanted]
    return found


def chosen_entries(args: argparse.Namespace, found: list[Found]) -> list[Entry]:
    """Return the brokers to measure. Raises UsageError."""
    chosen = args.brokers is not None
    names = (args.brokers if chosen else ",".join(SUITES[name].brokers for name in args.suites)).split(",")
    entries: dict[Entry, None] = {}
    for name in (name.strip() for name in names):
        for entry in named(name, found):
            entries.setdefault(entry)
    for one in args.at:
        name, _, where = one.partition("=")
        host, _, port = where.rpartition(":")
        if not (name and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise UsageError(f"--at: expected NAME=HOST:PORT; got {one!r}")
        entries.setdefault(Entry(name, where=(host.strip("[]"), int(port))))
    if not entries:
        raise UsageError("no broker to measure")
    return list(entries)


def named(name: str, found: list[Found]) -> list[Entry]:
    """Return the entries for one name of --brokers; a known broker that was not found gives none. Raises UsageError."""
    family, _, variant = name.partition(":")
    if variant:
        one = VARIANTS_OF_MOSQ.get(variant)
        if family != MOSQ.family or one is None:
            raise UsageError(f"no such variant: {name}; expected mosq: and one of {', '.join(VARIANTS_OF_MOSQ)}")
        return [Entry(family, variant, one.broker, next(one for one in found if one.peer is MOSQ))]
    hits = ([one for one in found if name == one.name or (name == "all" and not one.peer.named)]
            or [one for one in found if one.peer.family == name])
    if not hits:
        known = ", ".join(peer.family for peer in PEERS)
        if name.partition("-")[0] not in {peer.family for peer in PEERS}:
            raise UsageError(f"no such broker: {name}; known are {known}")
        print(f"{name} is left out: it is neither on PATH nor below --peers", file=sys.stderr)
    # `all` takes every broker of a family; else the first, which is on PATH (Debian's Mosquitto for the suites)
    return [Entry(one.name, found=one) for one in (hits if name == "all" else hits[:1])]


def chosen_how(args: argparse.Namespace) -> How:
    """Return repetitions, cores and limits. Raises UsageError."""
    cores = sorted(os.sched_getaffinity(0))
    for core in (args.cpu, args.broker_cpu):
        if core is not None and core not in cores:
            raise UsageError(f"there is no core {core} for this process; expected one of {', '.join(map(str, cores))}")
    broker_core = args.broker_cpu if args.broker_cpu is not None else cores[0] if len(cores) > 1 else None
    core = args.cpu if args.cpu is not None else cores[-1] if len(cores) > 1 else None
    reps = args.reps or (1 if args.quick else max(SUITES[name].reps for name in args.suites))
    return How(reps, broker_core, core, args.timeout, args.patience, args.username)


def measurement_options(args: argparse.Namespace, how: How) -> dict[str, object]:
    """Return the options that must be equal for repetitions of one measurement, beside the case."""
    return {"--scale": args.scale, "--quick": args.quick, "--seconds": seconds_of(args),
            "--broker-cpu": how.broker_core, "--cpu": how.core}


def seconds_of(args: argparse.Namespace) -> float:
    return float(args.seconds or (0.7 if args.quick else 1.5))


def default_folder(suites: list[str]) -> Path:
    return ROOT / "build" / "lab" / f"{'-'.join(dict.fromkeys(suites))}-{datetime.datetime.now():%Y%m%d-%H%M%S}"


def raised_descriptors() -> int:
    """Raise the limit of open files for brokers and load as far as possible, up to DESCRIPTORS_MAX; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted) if soft != resource.RLIM_INFINITY else wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


# ---------------------------------------------------------------- output

def list_all(found: list[Found], descriptors: int) -> None:
    """Print suites, tests, brokers and variants."""
    for suite in SUITES.values():
        print(f"{suite.name}: {suite.title}, {suite.reps} repetitions; brokers: {suite.brokers}")
        if suite.about:
            print(f"  ({suite.about})")
        for test in suite.tests:
            cases = [load.text for load in loads(suite, 2.0, descriptors) if load.test is test]
            print(f"  {test.id:16} {test.title}: {', '.join(cases)}")
    print("brokers found:")
    for one in found:
        print(f"  {one.name:16} {one.program if one.peer.programs else 'this checkout'}"
              f"{'' if one.peer.tried else ' (configured by its documentation, untested)'}")
    print("variants of mosq:")
    for variant in VARIANTS_OF_MOSQ.values():
        print(f"  mosq:{variant.name:16} {variant.what}")
    away = [peer.family for peer in PEERS if peer.family not in {one.peer.family for one in found}]
    if away:
        print(f"known, but not found: {', '.join(away)}")


def print_before(lab: Lab, descriptors: int) -> None:
    """Print the plan and its warnings."""
    how = lab.how
    def log(text: str) -> None:
        print(text, file=sys.stderr)

    log(f"{len(lab.loads)} cases, {how.reps} repetitions of {', '.join(entry.label for entry in lab.entries)}")
    log(f"results: {lab.folder.path}")
    if how.core is None or how.broker_core == how.core:
        log("WARNING: one core for broker and load: rates and latencies include both; CPU per message is the "
            "broker's own")
    for note in dict.fromkeys(load.note for load in lab.loads if "open files" in load.note):
        log(f"note: {note}")
    for entry in lab.entries:
        if entry.found and not entry.found.peer.tried:
            log(f"note: {entry.name} is started and configured by its documentation; this is untested")


def print_after(lab: Lab, why: str) -> None:
    """Print the tables, the warnings and the folder."""
    for line in figures.tables(lab.runs, [entry.label for entry in lab.entries]):
        print(line)
    print()
    for line in (*figures.warnings(lab.runs), *lab.left_out):
        print(line)
    if why:
        print(f"NOT COMPLETE: {why}; the measurements are kept, and marked")
    print(f"results: {lab.folder.path}", flush=True)


def report(folder: Path) -> None:
    """Make the page of the results."""
    from mosq.cli.commands_bench import bench

    if "report" in bench.commands:
        subprocess.run([sys.executable, "-m", "mosq", "bench", "report", str(folder)], check=False)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
