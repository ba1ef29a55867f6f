"""Run a spec and return its result; errors are part of the result, with the measurements until then."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import resource
from typing import TYPE_CHECKING

from mosq.tools.bench.result import Result
from mosq.tools.bench.runner import Stopped
from mosq.tools.bench.scenarios import clients_of, run
from mosq.tools.bench.spec import BenchError

if TYPE_CHECKING:
    from mosq.tools.bench.runner import Progress
    from mosq.tools.bench.spec import Spec

DESCRIPTORS = 64                # files beside those of the clients


def measure(spec: Spec, progress: Progress) -> Result:
    """Run a spec; an interrupted or failed run gives a result that is not complete.

    `progress` gets the name of the step and the counts. Raises BenchError if the run cannot begin.
    """
    _descriptors(clients_of(spec))
    result = Result(spec.as_dict(), machine(), datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                    where=spec.started or spec.where)
    try:
        run(spec, result.phases, progress)
    except (Stopped, BenchError) as stopped:
        result.complete, result.why = False, str(stopped)
    except KeyboardInterrupt:
        result.complete, result.why = False, "interrupted"
    except MemoryError:
        result.complete, result.why = False, "not enough memory for so many clients and streams"
    return result


def _descriptors(clients: int) -> None:
    wanted = clients + DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
            return
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft < wanted:
        raise BenchError(f"{clients:,} clients need {wanted:,} open files, but only {soft:,} are allowed (ulimit "
                         f"-n): at most {max(soft - DESCRIPTORS, 0):,} clients")


def machine() -> dict[str, object]:
    """Return the machine's cores, kernel, processor and Python version."""
    return {"cores": os.cpu_count(), "kernel": platform.release(), "processor": _processor(),
            "python": platform.python_version()}


def _processor() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()

