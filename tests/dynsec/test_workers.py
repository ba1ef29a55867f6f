"""Run the tests of dynamic security that a broker with two workers must pass, too."""

import sys

import pytest

from tests.dynsec import test_broker, test_ctrl

OTHERWISE = {
    "test_dynamic_security_in_an_embedded_broker": "an embedded broker is one process",
    "test_the_pages_of_the_http_api": "protocol http_api is another part of workers",
}
AGAIN = {name: test for module in (test_broker, test_ctrl) for name, test in vars(module).items()
         if name.startswith("test_") and name not in OTHERWISE}
globals().update({f"{name}_with_workers": pytest.mark.part("workers")(test) for name, test in AGAIN.items()})


@pytest.fixture(autouse=True)
def two_workers(monkeypatch):
    monkeypatch.setenv("MOSQ_BROKER", f"{sys.executable} -m mosq --workers 2")
