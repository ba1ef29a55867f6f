"""Test the log lines about failed logins by HTTP."""

from __future__ import annotations

import asyncio

from mosq.log_types import NOTICE
from mosq.server.http.refusals import NETWORKS_MAX, FailedLogins


def lines_of(*failures: tuple[str, str], times: int = 1) -> list[str]:
    """Return the lines about failures of (address, user), after `times` intervals of the same failures."""
    lines: list[str] = []

    async def fail() -> None:
        logins = FailedLogins(lambda kind, text: lines.append(f"{kind} {text}"))
        for _ in range(times):
            for failure in failures:
                logins.add(*failure)
            logins._next()
        logins.close()

    asyncio.run(fail())
    assert all(line.startswith(f"{NOTICE} ") for line in lines)
    return [line.partition(" ")[2] for line in lines]


def test_the_first_failure_of_an_address_has_a_line_and_the_others_a_count() -> None:
    first, count = "HTTP login from 192.0.2.7 as 'eve' failed.", "{} from 192.0.2.7 failed since the last line about them."
    assert lines_of(("192.0.2.7", "eve")) == [first]
    assert lines_of(("192.0.2.7", "eve"), times=2) == [first, first]
    assert lines_of(("192.0.2.7", "eve"), ("192.0.2.7", "ann")) == [first, count.format("1 more HTTP login")]
    assert lines_of(*[("192.0.2.7", "eve")] * 1000, times=2) == [
        first, count.format("999 more HTTP logins"), count.format("1000 more HTTP logins")]


def test_the_address_comes_before_the_name_so_that_no_name_accuses_another_address() -> None:
    [line] = lines_of(("192.0.2.7", "x' from 192.0.2.99 failed. HTTP login from 192.0.2.98 as 'y"))
    assert line.startswith("HTTP login from 192.0.2.7 as 'x")


def test_a_flood_from_many_addresses_writes_a_bounded_number_of_lines() -> None:
    flood = [(f"2001:db8:{i:x}::1", "x" * 5000) for i in range(5000)] * 2
    lines = lines_of(*flood)
    assert len(lines) == 2 * NETWORKS_MAX + 1
    assert max(map(len, lines)) < 200
    assert lines[-1] == f"{2 * (5000 - NETWORKS_MAX)} more HTTP logins from other addresses failed since the last line about them."


def test_an_address_of_the_same_ipv6_network_has_no_line_of_its_own() -> None:
    assert len(lines_of(*[(f"2001:db8::{i:x}", "eve") for i in range(100)])) == 2


def test_a_unix_socket_has_no_address() -> None:
    assert lines_of(("", "eve")) == ["HTTP login from this machine as 'eve' failed."]
