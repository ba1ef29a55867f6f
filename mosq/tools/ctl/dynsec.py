"""The commands of the dynamic security plugin, as in mosquitto_ctrl and its shell."""

from mosq.tools.ctl import show
from mosq.tools.ctl.spec import ALLOW, GROUP, NUMBER, PASSWORD, ROLE, USER, Arg, Module, Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mosq.tools.ctl.spec import Values

TOPIC = "$CONTROL/dynamic-security/v1"
ACL_TYPES = ("publishClientSend", "publishClientReceive", "subscribeLiteral", "subscribePattern", "unsubscribeLiteral",
             "unsubscribePattern")
DEFAULT_TYPES = ("publishClientSend", "publishClientReceive", "subscribe", "unsubscribe")
GENERAL, CLIENTS, GROUPS, ROLES = "General", "Clients", "Groups", "Roles"

USERNAME, GROUPNAME, ROLENAME = Arg("username", USER), Arg("groupname", GROUP), Arg("rolename", ROLE)
PRIORITY = Arg("priority", NUMBER, required=False)
PAGE = (Arg("count", NUMBER, required=False), Arg("offset", NUMBER, required=False))


def _default_access(values: "Values") -> "dict[str, Any]":
    return {"acls": [{"acltype": values["acltype"], "allow": values["access"] == "allow"}]}


def _add_acl(values: "Values") -> "dict[str, Any]":
    fields: dict[str, Any] = {name: values[name] for name in ("rolename", "acltype", "topic")}
    fields["allow"] = values["access"] == "allow"
    return _with_priority(fields, values)


def _add(values: "Values") -> "dict[str, Any]":
    return _with_priority({name: value for name, value in values.items() if name != "priority"}, values)


def _with_priority(fields: "dict[str, Any]", values: "Values") -> "dict[str, Any]":
    """Add the priority unless it is -1, which means none, as in mosquitto_ctrl."""
    if values.get("priority", "-1") != "-1":
        fields["priority"] = int(values["priority"])
    return fields


def _page(values: "Values") -> "dict[str, Any]":
    return {name: int(value) for name, value in values.items() if int(value) > 0}


def _modify(key: str) -> "Any":
    def build(values: "Values") -> "dict[str, Any]":
        name, value = values["property"], values["value"]
        return {key: values[key], name: value.lower() == "true" if name == "allowWildcardSubs" else value}
    return build


TEXTS = ("textName", "textDescription")
SPECS = (
    Spec("getDefaultACLAccess", "Show the default access, which applies if no ACL matches.",
         show=show.default_access, section=GENERAL),
    Spec("setDefaultACLAccess", "Set the default access, which applies if no ACL matches.",
         (Arg("acltype", DEFAULT_TYPES), Arg("access", ALLOW)), _default_access, section=GENERAL),
    Spec("getAnonymousGroup", "Show the group of clients without a user name.", show=show.anonymous_group,
         section=GENERAL),
    Spec("setAnonymousGroup", "Set the group of clients without a user name.", (GROUPNAME,), section=GENERAL),
    Spec("getDetails", "Show the numbers of clients, groups, roles and changes.", show=show.pairs,
         section=GENERAL),

    Spec("createClient", "Create a client; prompts for its password unless it is given.",
         (USERNAME, Arg("clientid", required=False, flags=("-i", "-c")), Arg("password", PASSWORD, False, ("-p",))),
         section=CLIENTS),
    Spec("deleteClient", "Delete a client.", (USERNAME,), section=CLIENTS),
    Spec("setClientPassword", "Set a client's password; prompts for it unless it is given.",
         (USERNAME, Arg("password", PASSWORD, required=False)), section=CLIENTS),
    Spec("setClientId", "Set the client id that a client must use; without an id, any is allowed.",
         (USERNAME, Arg("clientid", required=False)), section=CLIENTS),
    Spec("addClientRole", "Give a role to a client. Roles of higher priority are checked first.",
         (USERNAME, ROLENAME, PRIORITY), _add, section=CLIENTS),
    Spec("removeClientRole", "Take a role from a client.", (USERNAME, ROLENAME, PRIORITY), _add, section=CLIENTS),
    Spec("getClient", "Show a client with its roles and groups.", (USERNAME,), show=show.client, section=CLIENTS),
    Spec("listClients", "List the names of clients, or a page of them.", PAGE, _page,
         show.listed("clients", "username"), CLIENTS),
    Spec("enableClient", "Enable a disabled client.", (USERNAME,), section=CLIENTS),
    Spec("disableClient", "Disable a client and disconnect it.", (USERNAME,), section=CLIENTS),
    Spec("modifyClient", "Set a client's free texts.", (USERNAME, Arg("property", TEXTS), Arg("value")),
         _modify("username"), section=CLIENTS),

    Spec("createGroup", "Create a group.", (GROUPNAME,), section=GROUPS),
    Spec("deleteGroup", "Delete a group.", (GROUPNAME,), section=GROUPS),
    Spec("addGroupRole", "Give a role to a group. Roles of higher priority are checked first.",
         (GROUPNAME, ROLENAME, PRIORITY), _add, section=GROUPS),
    Spec("removeGroupRole", "Take a role from a group.", (GROUPNAME, ROLENAME, PRIORITY), _add, section=GROUPS),
    Spec("addGroupClient", "Put a client into a group. Its groups of higher priority are checked first.",
         (GROUPNAME, USERNAME, PRIORITY), _add, section=GROUPS),
    Spec("removeGroupClient", "Take a client out of a group.", (GROUPNAME, USERNAME, PRIORITY), _add, section=GROUPS),
    Spec("getGroup", "Show a group with its roles and clients.", (GROUPNAME,), show=show.group, section=GROUPS),
    Spec("listGroups", "List the names of groups, or a page of them.", PAGE, _page, show.listed("groups", "groupname"),
         GROUPS),
    Spec("modifyGroup", "Set a group's free texts.", (GROUPNAME, Arg("property", TEXTS), Arg("value")),
         _modify("groupname"), section=GROUPS),

    Spec("createRole", "Create a role.", (ROLENAME,), section=ROLES),
    Spec("deleteRole", "Delete a role.", (ROLENAME,), section=ROLES),
    Spec("addRoleACL", "Add an ACL to a role. ACLs of higher priority are checked first.",
         (ROLENAME, Arg("acltype", ACL_TYPES), Arg("topic"), Arg("access", ALLOW), PRIORITY), _add_acl, section=ROLES),
    Spec("removeRoleACL", "Remove an ACL from a role.", (ROLENAME, Arg("acltype", ACL_TYPES), Arg("topic")),
         section=ROLES),
    Spec("getRole", "Show a role with its ACLs.", (ROLENAME,), show=show.role, section=ROLES),
    Spec("listRoles", "List the names of roles, or a page of them.", PAGE, _page, show.listed("roles", "rolename"),
         ROLES),
    Spec("modifyRole", "Set a role's free texts, or whether its clients may subscribe to wildcards.",
         (ROLENAME, Arg("property", ("allowWildcardSubs", *TEXTS)), Arg("value")), _modify("rolename"), section=ROLES),
)

MODULE = Module("dynsec", "The dynamic security plugin: clients, groups, roles.", SPECS, lambda spec: TOPIC)
