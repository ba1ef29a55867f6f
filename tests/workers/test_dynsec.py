"""Test dynamic security with two workers: one order of commands, one file, and rules that all workers use before the
response."""

from __future__ import annotations

import json
import os
import random
import signal
import threading

import pytest

from tests.dynsec.admin import LET_IN, PASSWORD, Admin, lets_in, login, state
from tests.dynsec.test_broker import KICKED, client
from tests.harness.packets import Disconnect, Publish
from tests.harness.wire import Wire
from tests.workers.case import Workers, until

CONFIG = """allow_anonymous true
plugin /usr/lib/mosquitto_dynamic_security.so
plugin_opt_config_file {dir}/dynsec.json
auth_backoff false
"""


class Ruled(Workers):
    """Workers with dynamic security."""

    def __init__(self, content: object | None, config: str = "", n: int = 2, options: str = CONFIG) -> None:
        super().__init__(n, options + config)
        self.file = self.dir / "dynsec.json"
        if content is not None:
            self.file.write_text(json.dumps(content))

    def written(self) -> dict[str, list[dict[str, object]]]:
        return json.loads(self.file.read_bytes())       # type: ignore[no-any-return]

    def names(self) -> set[object]:
        return {one["username"] for one in self.written()["clients"]}

    def admin(self, number: int) -> Admin:
        found = Admin(self.port, "admin", PASSWORD, self.id_on(number, "boss"), 5)
        assert self.holder(found.wire) == number
        self.opened.append(found.wire)
        return found

    def user_on(self, number: int, name: str) -> Wire:
        wire, rc = login(self.port, name, name, self.id_on(number, name), 5)
        assert rc == LET_IN
        self.opened.append(wire)
        return wire


def kicked(wire: Wire) -> bool:
    packet = wire.read_packet()
    return isinstance(packet, Disconnect) and packet.rc == KICKED


def granted(wire: Wire, topic: str) -> bool:
    wire.send(Publish(topic, b"x", 1, 7))
    return int(wire.read_packet().rc) in (0, 0x10)


@pytest.mark.parametrize("number", [1, 2])
def test_a_command_holds_at_each_worker_before_its_response(number: int) -> None:
    with Ruled(state(clients=[client("ann")])) as broker:
        admin = broker.admin(number)
        ids = {place: broker.id_on(place) for place in (1, 2)}
        witness = broker.user_on(3 - number, "ann")
        admin.does("createRole", rolename="writer", acls=[
            {"acltype": "publishClientSend", "topic": "w/#", "priority": 0, "allow": True}])
        admin.does("createGroup", groupname="writers", roles=[{"rolename": "writer"}])
        for turn in range(15):
            admin.does("createClient", username=f"u{turn}", password="p", groups=[{"groupname": "writers"}])
            for client_id in ids.values():
                assert lets_in(broker.port, f"u{turn}", "p", client_id)
            admin.does("disableClient", username=f"u{turn}")
            for client_id in ids.values():
                assert not lets_in(broker.port, f"u{turn}", "p", client_id)
            assert {"username": f"u{turn}", "disabled": True}.items() <= next(
                one for one in broker.written()["clients"] if one["username"] == f"u{turn}").items()
        for allow in (True, False) * 5:
            admin.does("setDefaultACLAccess", acls=[{"acltype": "publishClientSend", "allow": allow}])
            assert granted(witness, "free") is allow


@pytest.mark.parametrize("number", [1, 2])
def test_a_client_is_disconnected_wherever_it_is(number: int) -> None:
    with Ruled(state(clients=[client("ann"), client("ben")])) as broker:
        admin = broker.admin(number)
        anns = [broker.user_on(place, "ann") for place in (1, 2)]
        bens = [broker.user_on(place, "ben") for place in (1, 2)]
        admin.does("disableClient", username="ann")
        assert all(kicked(one) for one in anns)
        admin.does("deleteClient", username="ben")
        assert all(kicked(one) for one in bens)
        assert admin.ask({"command": "listClients"})[0]["data"]["clients"] == ["admin", "ann"]      # type: ignore[index]


def asked(admin: Admin, mine: str, **command: object) -> dict[str, object]:
    """Send a command, and return its response among those for other administrators."""
    admin.publish(json.dumps({"commands": [{**command, "correlationData": mine}]}).encode())
    while True:
        for answer in json.loads(admin.hear())["responses"]:
            if answer["correlationData"] == mine:
                return answer           # type: ignore[no-any-return]


def test_administrators_at_all_workers_change_one_state() -> None:
    with Ruled(state()) as broker:
        created = [0] * 4
        wrong: list[BaseException] = []

        def create(mine: int, admin: Admin) -> None:
            try:
                for turn in range(25):
                    assert "error" not in asked(admin, f"{mine}", command="createClient", username=f"a{mine}-{turn}")
                    created[mine] += "error" not in asked(admin, f"{mine}", command="createClient", username=f"c{turn}")
            except BaseException as error:
                wrong.append(error)

        admins = [broker.admin(number) for number in (1, 2, 1, 2)]
        threads = [threading.Thread(target=create, args=one) for one in enumerate(admins)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert sum(created) == 25       # each name was free for one of them
        expected = {"admin", *(f"c{i}" for i in range(25)), *(f"a{n}-{i}" for n in range(4) for i in range(25))}
        assert broker.names() == expected
        for admin in admins:
            listed = asked(admin, "end", command="listClients")["data"]
            assert set(listed["clients"]) == expected       # type: ignore[index]
        assert broker.written()["changeIndex"] == 125       # type: ignore[comparison-overlap]


@pytest.mark.parametrize("number", [1, 2])
def test_a_killed_worker_begins_with_the_rules_in_force(number: int) -> None:
    with Ruled(state(clients=[client("ann")])) as broker:
        admin = broker.admin(3 - number)
        there = broker.id_on(number)
        broker.kill(number)
        admin.does("createClient", username="new", password="new")
        admin.does("deleteClient", username="ann")
        assert lets_in(broker.port, "new", "new", there)        # waits until the worker is there again
        assert not lets_in(broker.port, "ann", "ann", there)


def test_a_change_waits_for_a_worker_that_is_stopped_until_it_is_killed() -> None:
    with Ruled(state(clients=[client("ann")]), "cluster_watchdog 1\n") as broker:
        admin = broker.admin(1)
        there = broker.id_on(2)
        broker.kill(2, signal.SIGSTOP)
        admin.does("disableClient", username="ann")
        broker.wait_log("Worker 2 (process ")
        broker.wait_log(") has given no sign of life for 1 seconds, and was killed")
        assert not lets_in(broker.port, "ann", "ann", there)


def test_a_change_that_cannot_be_saved_is_refused_everywhere() -> None:
    with Ruled(state(clients=[client("ann")])) as broker:
        admin = broker.admin(1)
        (broker.dir / "dynsec.json.new").mkdir()        # the broker cannot write its new file
        assert admin.ask({"command": "createClient", "username": "ben", "password": "ben"}) == [
            {"command": "createClient", "error": "Internal error"}]
        for place in (1, 2):
            assert not lets_in(broker.port, "ben", "ben", broker.id_on(place))
            assert lets_in(broker.port, "ann", "ann", broker.id_on(place))
        (broker.dir / "dynsec.json.new").rmdir()
        admin.does("createClient", username="ben", password="ben")
        for place in (1, 2):
            assert lets_in(broker.port, "ben", "ben", broker.id_on(place))


def test_workers_generate_one_first_file() -> None:
    with Ruled(None, n=3) as broker:
        word = (broker.dir / "dynsec.json.pw").read_text().split()[1]
        assert broker.log().count("generating a default config") == 1
        for place in (1, 2, 3):
            assert lets_in(broker.port, "admin", word, broker.id_on(place))


def test_sighup_brings_another_file_that_is_generated_once() -> None:
    with Ruled(state(clients=[client("ann")])) as broker:
        broker.config.write_text(broker.config.read_text().replace("dynsec.json", "other.json"))
        ids = [broker.id_on(place) for place in (1, 2)]
        broker.send_signal(signal.SIGHUP)
        until(lambda: not any(lets_in(broker.port, "ann", "ann", one) for one in ids), broker.log)
        word = (broker.dir / "other.json.pw").read_text().split()[1]
        assert all(lets_in(broker.port, "admin", word, one) for one in ids)
        admin = Admin(broker.port, "admin", word, ids[0], 5)
        broker.opened.append(admin.wire)
        admin.does("createClient", username="new", password="new")
        assert all(lets_in(broker.port, "new", "new", one) for one in ids[1:])


def test_reloads_between_commands_lose_no_change() -> None:
    with Ruled(state()) as broker:
        admins = [broker.admin(number) for number in (1, 2)]
        sent = 0
        for turn in range(12):
            broker.send_signal(signal.SIGHUP)
            for mine, admin in enumerate(admins):
                answer = asked(admin, f"{turn}.{mine}", command="createClient", username=f"u{turn}-{mine}", password="p")
                sent += "error" not in answer
                if "error" in answer:
                    assert "reloaded" in str(answer["error"])
        names = broker.names() - {"admin"}
        assert len(names) == sent > 0
        for place in (1, 2):
            client_id = broker.id_on(place)
            for name in names:
                assert lets_in(broker.port, str(name), "p", client_id), (place, name)


def test_kill_9_at_any_time_loses_no_acknowledged_command() -> None:
    chance = random.Random(34)
    with Ruled(state()) as broker:
        acknowledged: set[str] = set()
        turn = 0
        for _ in range(12):
            number = chance.choice((1, 2))
            place = chance.choice((1, 2))
            until(lambda: len(broker.pids()) == 2, broker.log)
            admin = broker.admin(place)
            timer = threading.Timer(chance.uniform(0.0, 0.05), os.kill, (broker.pids()[number], signal.SIGKILL))
            timer.start()
            try:
                for _ in range(25):
                    turn += 1
                    admin.does("createClient", username=f"k{turn}")
                    acknowledged.add(f"k{turn}")
            except (AssertionError, OSError, AttributeError, EOFError):
                pass                    # the worker of the administrator was killed
            timer.join()
            admin.wire.close()
        until(lambda: len(broker.pids()) == 2, broker.log)
        assert acknowledged <= broker.names()
        for place in (1, 2):
            listed = asked(broker.admin(place), "end", command="listClients")["data"]
            assert set(listed["clients"]) == broker.names()     # type: ignore[index]
