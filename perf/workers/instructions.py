"""Count the instructions that one process needs for each message, in this checkout and in another one (callgrind).

The difference of two runs, one with twice the messages, so that start and end do not count. Two runs of one build
differ by about 15 instructions.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from mosq.tools.bench.run import measure as bench
from mosq.tools.bench.spec import Spec
from mosq.tools.bench.started import CONFIG, free_port
from perf.watched import wait_for_slow

HERE = Path(__file__).parents[2]
LIMIT = 1.005
LOADS = {"1 pair QoS 0": (1, 0), "10 pairs QoS 0": (10, 0), "10 pairs QoS 1": (10, 1)}


def whole(checkout: Path, pairs: int, qos: int, messages: int) -> int:
    """Return the instructions of a broker's life with so many messages."""
    with tempfile.TemporaryDirectory(prefix="mosq-workers-") as folder:
        port, out, file = free_port(), Path(folder, "counts"), Path(folder, "mosq.conf")
        user = "user root\n" if os.geteuid() == 0 else ""
        file.write_text(f"{user}sys_interval 0\nobserve_messages 0\n{CONFIG.format(port=port)}")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        process = subprocess.Popen(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", str(checkout / ".venv/bin/python"), "-m",
             "mosq", "-c", str(file)],
            cwd=checkout, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for_slow(port)
            spec = Spec("pairs", port=port, publishers=pairs, qos=qos, messages=messages, stall=60.0)
            result = bench(spec, lambda _what, _counts: None)
        finally:
            process.terminate()
            process.wait()
        found = re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)
        if not result.complete or found is None:
            raise SystemExit(result.why or "callgrind has no count")
        return int(found[1])


def measure(before: Path, messages: int) -> list[dict[str, Any]]:
    rows = []
    for title, (pairs, qos) in LOADS.items():
        old, new = ((whole(checkout, pairs, qos, 2 * messages) - whole(checkout, pairs, qos, messages)) / messages
                    for checkout in (before.resolve(), HERE))
        rows.append({"load": title, "before": old, "now": new, "ratio": new / old, "limit": LIMIT})
        print(f"{title}: {old:.0f} before, {new:.0f} now, {new / old:.3f} x", flush=True)
    return rows
