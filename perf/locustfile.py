"""Define MQTT load tests for locust: docs/load.md.

    locust -f perf/locustfile.py --host mqtt://localhost:1883               # its page: http://localhost:8089
    locust -f perf/locustfile.py --host mqtt://localhost:1883 --headless -u 100 -r 50 -t 30s --tags telemetry chat
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from perf.load import hooks
from perf.load.users import Chat, Commands, Offline, Storm, Telemetry

__all__ = ["Chat", "Commands", "Offline", "Storm", "Telemetry"]

hooks.install()
