"""Options and marks of all tests.

``pytest`` runs all tests but the repetitions that belong to a part of `make test-all`; ``pytest tests/wire`` runs all tests of
that folder; ``pytest --part transports`` runs one part with all its repetitions (docs/testing.md). With ``--workers 2`` every
broker that tests start has two workers; the tests with a mark `one_process` are left out, and say why.

MOSQ_TESTS_END is a moment, in seconds since 1970, after which no further test begins, for runs that must end in time
(`dev/test-all --seconds`). The tests that are left out then count as skipped.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from hypothesis import settings

from tests.harness.broker import has_workers
from tests.harness.paho import close_pairs, keep_pubrels
from tests.harness.parallel import Parallel

settings.register_profile("mosq", deadline=None)        # nothing is asserted about time
settings.load_profile("mosq")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell starts programs in the background so; tests send SIGINT to programs that they start
    signal.signal(signal.SIGINT, signal.default_int_handler)
END_S = float(os.environ.get("MOSQ_TESTS_END", "inf"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--jobs", type=int, default=0, metavar="N", help="run the tests in N processes (see tests/harness/parallel.py)")
    parser.addoption("--part", metavar="NAME", help="run one part of `make test-all`, with all its repetitions")
    parser.addoption("--workers", type=int, default=0, metavar="N", help="start brokers with N workers (cluster_local)")
    parser.addoption("--all", action="store_true", help="run all tests and all parts, with all repetitions")


@pytest.hookimpl(trylast=True)          # after the terminal reporter is registered
def pytest_configure(config: pytest.Config) -> None:
    close_pairs()
    keep_pubrels()
    if config.getoption("--part") or config.getoption("--all"):
        os.environ["MOSQ_TESTS_FULL"] = "1"         # for tests.harness.effort, also in processes that tests start
    if workers := config.getoption("--workers"):
        os.environ["MOSQ_BROKER"] = f"{sys.executable} -m mosq --workers {workers}"
    if config.getoption("--jobs") < 0:
        raise pytest.UsageError("--jobs needs a number of processes, or 0: no other processes")
    if jobs := config.getoption("--jobs"):
        config.pluginmanager.register(Parallel(config, jobs))


def parts_of(item: pytest.Item, mark: str) -> set[str]:
    return {name for found in item.iter_markers(mark) for name in found.args}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if part := config.getoption("--part"):
        parts = {name for item in items for name in parts_of(item, "part") | parts_of(item, "again")}
        chosen = [item for item in items if part in parts_of(item, "part") | parts_of(item, "again")]
        if not chosen:
            raise pytest.UsageError(f"no test is in the part {part}; expected one of {', '.join(sorted(parts))}")
    elif not config.getoption("--all") and config.args_source == pytest.Config.ArgsSource.TESTPATHS:
        chosen = [item for item in items if not parts_of(item, "part")]
    else:
        return          # a caller that names files wants all tests in them
    among = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in among])
    items[:] = chosen


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > END_S:
        pytest.skip("left out for lack of time")
    alone = item.get_closest_marker("one_process")
    if alone is not None and has_workers():
        pytest.skip(f"one process: {alone.args[0]}")
