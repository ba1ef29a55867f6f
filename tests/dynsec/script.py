"""Provide one script of commands for all brokers.

Each entry is a message: a list of commands, or bytes. An entry that Mosquitto answers this way only since 2.1 is marked (`n`): earlier versions
accepted empty and unknown names, and did not survive the end of the anonymous group.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def c(command: str, correlation: str | None = None, **more: object) -> Object:
    return {"command": command, **more, **({} if correlation is None else {"correlationData": correlation})}


def n(command: str, **more: object) -> Object:
    return c(command, NEWER="", **more)


BROKEN_2_1: list[bytes] = [b'{"commands": [null, {"command": "listClients"}]}']
BROKEN: list[bytes] = [
    b"", b"{", b"nonsense", b"[]", b"{}", b"null", b'{"commands": {}}', b'{"commands": "x"}', b'{"commands": []}', b'{"commands": [1]}',
    *BROKEN_2_1, b'{"commands": [{}]}', b'{"commands": [{"command": 1}]}',
    b'{"commands": [{"command": "listGroups", "correlationData": 5}, {"command": "listGroups"}]}',
    b'{"commands": [{"command": "listGroups", "correlationData": null}]}',
    b'{"commands": [{"command": "nosuch"}]}', b'{"commands": [{"command": ""}]}',
    b'{"commands": [{"command": "nosuch", "correlationData": "x\\"y"}]}',
    b'{"Commands": [{"COMMAND": "LISTgroups", "CorrelationData": "c"}]} and more',
    b'{"commands": [{"command": "getGroup", "groupname": "a\\u0000b"}]}',
    b'{"commands": [{"command": "getClient", "username": "\xff\xfe"}]}', b'{"commands": [{"command": "getClient", "username": "a\\u0001"}]}',
    b'{"commands": [{"command": "getClient", "username": "x", "username": "admin2"}]}', b'\xef\xbb\xbf{"commands": []}',
    b'{"commands": [{"command": "listGroups", "count": NaN}]}', b"[" * 500 + b"]" * 500,
]

MESSAGES: list[bytes | list[Object]] = [
    *BROKEN,
    [c("listClients"), c("listGroups"), c("listRoles")],
    [c("getDefaultACLAccess", "abc")],
    [c("setDefaultACLAccess", acls=[{"acltype": "subscribe", "allow": True}, {"acltype": "UNSUBSCRIBE", "allow": False}, {"acltype": "x", "allow": True},
                                    {"acltype": "publishClientSend"}, 5, {"acltype": "publishClientSend", "allow": 1}]),
     c("getDefaultACLAccess"), c("setDefaultACLAccess"), c("setDefaultACLAccess", acls={}), c("setDefaultACLAccess", "z", acls=[])],
    # roles
    [c("createRole"), n("createRole", rolename=""), c("createRole", rolename=5), c("createRole", rolename="r1", textname=5),
     c("createRole", rolename="r1", textdescription=[]), c("createRole", "1", rolename="r1", textname="R \u00e9\U0001f600\"\\/\b\t", textdescription="d"),
     c("createRole", rolename="r1"), c("getRole", "2", rolename="r1"), c("getRole", rolename="none"), c("getRole")],
    [c("createRole", rolename="r2", acls=[
        {"acltype": "publishClientSend", "topic": "a", "priority": 1, "allow": True}, {"acltype": "publishClientSend", "topic": "b", "priority": 5},
        {"acltype": "publishClientSend", "topic": "c", "priority": 5, "allow": True},
        {"acltype": "subscribeLiteral", "topic": "a/#", "priority": 20}, {"acltype": "subscribePattern", "topic": "%u/#", "priority": -3.7},
        {"acltype": "unsubscribeLiteral", "topic": "u"}, {"acltype": "UNSUBscribePattern", "topic": "+/u"}, {"acltype": "publishClientReceive", "topic": "x"},
        {"acltype": "nosuch", "topic": "x"}, {"acltype": "publishClientSend"}, {"topic": "x"}]),
     c("getRole", rolename="r2"), c("createRole", rolename="r3", acls={}), c("listRoles"), c("listRoles", "v", verbose=True)],
    [c("listRoles", count=2), c("listRoles", count=1, offset=1), c("listRoles", count=0), c("listRoles", offset=99), c("listRoles", offset=-1),
     c("listRoles", count="2"), c("listRoles", count=-5, offset=2), c("listRoles", verbose="yes")],
    [c("addRoleACL"), c("addRoleACL", rolename="none"), c("addRoleACL", rolename="r1"), c("addRoleACL", rolename="r1", acltype="nosuch"),
     c("addRoleACL", rolename="r1", acltype="publishClientSend"), n("addRoleACL", rolename="r1", acltype="publishClientSend", topic=""),
     c("addRoleACL", rolename="r1", acltype="publishClientSend", topic="a#"), c("addRoleACL", rolename="r1", acltype="publishClientSend", topic="a/+b"),
     c("addRoleACL", rolename="r1", acltype="publishClientSend", topic="#/a"), c("addRoleACL", rolename="r1", acltype="publishClientSend", topic="/" * 201),
     c("addRoleACL", "x", rolename="r1", acltype="publishclientsend", topic="t/#", priority=-7, allow=True),
     c("addRoleACL", rolename="r1", acltype="publishClientSend", topic="t/#"), c("addRoleACL", rolename="r1", acltype="subscribePattern", topic="t/#"),
     c("addRoleACL", rolename="r1", acltype="subscribePattern", topic="t", allow="x", priority=9.9), c("getRole", rolename="r1")],
    [c("removeRoleACL"), c("removeRoleACL", rolename="none"), c("removeRoleACL", rolename="r1"), c("removeRoleACL", rolename="r1", acltype="x"),
     c("removeRoleACL", rolename="r1", acltype="subscribePattern"), c("removeRoleACL", rolename="r1", acltype="subscribePattern", topic="+a"),
     c("removeRoleACL", rolename="r1", acltype="subscribePattern", topic="none"), c("removeRoleACL", rolename="r1", acltype="subscribePattern", topic="t"),
     c("getRole", rolename="r1")],
    [c("modifyRole"), c("modifyRole", rolename="none"), c("modifyRole", rolename="r1", textname="new", textdescription="new d"), c("getRole", rolename="r1"),
     c("modifyRole", rolename="r1", textname=5, acls=[{"acltype": "publishClientReceive", "topic": "n", "allow": True}]), c("getRole", rolename="r1")],
    # clients
    [c("createClient"), n("createClient", username=""), c("createClient", username=[]), c("createClient", username="ann", password=5),
     c("createClient", username="ann", clientid=5), c("createClient", username="ann", textname={}), c("createClient", username="ann", textdescription=1),
     c("createClient", username="ann", roles={}), c("createClient", username="ann", roles=[1]), c("createClient", username="ann", roles=[{}]),
     c("createClient", username="ann", roles=[{"rolename": "none"}]), c("createClient", username="ann", groups=[{"groupname": "none"}]),
     c("getClient", username="ann")],
    [c("createClient", "c1", username="ann", password="pw", clientid="cid", textname="Ann", textdescription="A. N.", roles=[
        {"rolename": "r2", "priority": 4}, {"rolename": "r1"}, {"rolename": "r1", "priority": 9}, {"rolename": "r3", "priority": 4}]),
     c("createClient", username="ann"), c("createClient", username="bob", clientid=""), c("createClient", username="\u00e9l"),
     c("createClient", username="a b", groups=5), c("listClients"), c("listClients", count=2, offset=1)],
    [c("modifyClient"), c("modifyClient", username="none"), c("modifyClient", username="bob", clientid="x", textname="B", textdescription="Bo"),
     c("modifyClient", username="bob", roles=5), c("modifyClient", username="bob", roles=[{"rolename": "none"}]),
     n("modifyClient", username="bob", groups=[{"groupname": "none"}]), n("modifyClient", username="bob", groups=[{}]),
     c("modifyClient", username="bob", roles=[{"rolename": "r3", "priority": 200000}, {"rolename": "r1", "priority": -1}])],
    [c("setClientPassword"), c("setClientPassword", username="none", password="x"), c("setClientPassword", username="bob"),
     c("setClientPassword", username="bob", password=""), c("setClientPassword", username="bob", password="x"),
     c("setClientId"), c("setClientId", username="none", clientid="x"), c("setClientId", username="bob", clientid=5), c("setClientId", username="bob", clientid="y"),
     c("enableClient"), c("enableClient", username="none"), c("disableClient"), c("disableClient", username="none"), c("disableClient", username="bob")],
    [c("addClientRole"), c("addClientRole", username="bob"), c("addClientRole", username="none", rolename="r1"), c("addClientRole", username="bob", rolename="none"),
     c("addClientRole", "r", username="bob", rolename="r2", priority=5), c("removeClientRole"), c("removeClientRole", username="bob"),
     c("removeClientRole", username="none", rolename="r1"), c("removeClientRole", username="bob", rolename="none"), c("removeClientRole", username="bob", rolename="r1")],
    # groups
    [c("createGroup"), n("createGroup", groupname=""), c("createGroup", groupname=1), c("createGroup", groupname="g1", textname=1),
     c("createGroup", groupname="g1", textdescription=1), c("createGroup", groupname="g1", roles=[{"rolename": "none"}]), c("createGroup", groupname="g1", roles=5),
     c("createGroup", "g", groupname="g1", textname="G", textdescription="Gr", roles=[{"rolename": "r1", "priority": 3}, {"rolename": "r2"}]),
     c("createGroup", groupname="g1"), c("createGroup", groupname="g2"), c("createGroup", groupname="g0"), c("listGroups"), c("listGroups", "v", verbose=True),
     c("listGroups", count=1, offset=1), c("getGroup", "q", groupname="g1"), c("getGroup", groupname="none"), c("getGroup")],
    [c("addGroupClient"), c("addGroupClient", username="bob"), c("addGroupClient", username="none", groupname="g1"), c("addGroupClient", username="bob", groupname="none"),
     c("addGroupClient", username="bob", groupname="g1", priority=2), c("addGroupClient", username="ann", groupname="g1"),
     c("addGroupClient", username="bob", groupname="g2", priority=-900000), c("addGroupClient", username="bob", groupname="g0", priority=2),
     c("getGroup", groupname="g1"), c("listGroups", verbose=True)],
    [c("removeGroupClient"), c("removeGroupClient", username="bob"), c("removeGroupClient", username="none", groupname="g1"),
     c("removeGroupClient", username="bob", groupname="none"), c("removeGroupClient", "w", username="ann", groupname="g1"), c("getGroup", groupname="g1")],
    [c("addGroupRole"), c("addGroupRole", groupname="g1"), c("addGroupRole", groupname="none", rolename="r1"), c("addGroupRole", groupname="g1", rolename="none"),
     c("addGroupRole", groupname="g1", rolename="r3", priority=100), c("addGroupRole", groupname="g2", rolename="r3"), c("removeGroupRole"),
     c("removeGroupRole", groupname="g1"), c("removeGroupRole", groupname="none", rolename="r1"), c("removeGroupRole", groupname="g1", rolename="none"),
     c("removeGroupRole", groupname="g1", rolename="r2"), c("getGroup", groupname="g1")],
    [c("modifyGroup"), c("modifyGroup", groupname="none"), c("modifyGroup", groupname="g1", textname="new", textdescription="D"),
     c("modifyGroup", groupname="g1", roles=[{"rolename": "none"}]), c("modifyGroup", groupname="g1", roles=5), n("modifyGroup", groupname="g1", clients=[{}]),
     n("modifyGroup", groupname="g1", clients=[{"username": "none"}]), c("modifyGroup", groupname="g1", clients=[{"username": "ann", "priority": 5}]),
     c("modifyGroup", groupname="g1", roles=[{"rolename": "r2", "priority": 1}]), c("getGroup", groupname="g1")],
    [c("getAnonymousGroup", "n"), c("setAnonymousGroup"), c("setAnonymousGroup", groupname="none"), c("setAnonymousGroup", "s", groupname="g2"),
     c("getAnonymousGroup"), n("deleteGroup", groupname="g2")],
    # remove everything again (modifyClient first: Mosquitto forgets to remove a role that createClient gave, and reads freed
    # memory afterwards)
    [c("modifyClient", username="ann", roles=[{"rolename": "r2", "priority": 4}]), c("deleteGroup"), c("deleteGroup", groupname="none"), c("deleteGroup", "d", groupname="g1"), c("listGroups"), c("deleteRole"), c("deleteRole", rolename="none"),
     n("deleteRole", rolename="r3"), c("createRole", rolename="r9"), c("deleteRole", "e", rolename="r9"), c("listRoles"), c("getGroup", groupname="g2")],
    [c("deleteClient"), c("deleteClient", username="none"),
     c("deleteClient", username="bob"), c("listClients")],
]

NEWER: list[list[Object]] = [
    [c("createRole", rolename="twice", acls=[{"acltype": "publishClientSend", "topic": "a", "priority": 1, "allow": True},
                                            {"acltype": "publishClientSend", "topic": "a"}, {"acltype": "publishClientSend", "topic": "b", "priority": -2000000}]),
     c("getRole", rolename="twice"), c("deleteRole", rolename="twice")],
    [c("getDetails", "d"), c("createRole", rolename="plain", allowwildcardsubs=False), c("createRole", rolename="x", allowwildcardsubs=5),
     c("getRole", rolename="plain"), c("modifyRole", rolename="plain", allowwildcardsubs=True), c("getRole", rolename="plain"), c("getDetails")],
    [c("getClient", "c", username="ann"), c("listClients", verbose=True), c("addGroupRole", groupname="g2", rolename="r1"),
     c("addGroupRole", groupname="g2", rolename="r1"), c("addClientRole", username="ann", rolename="r1"), c("addClientRole", username="ann", rolename="r1"),
     c("addGroupClient", username="ann", groupname="g2"), c("addGroupClient", username="ann", groupname="g2"),
     c("createClient", username="twice", groups=[{"groupname": "g2"}, {"groupname": "g2"}]), c("getClient", username="twice")],
]
