"""Commands about groups, and the one of clients without a user name. See commands.py."""

from mosq.auth.dynsec.doing import Doing, RefusedError
from mosq.auth.dynsec.model import PRIORITY_MAX, Client, Group
from mosq.auth.dynsec.reading import items, text
from mosq.auth.dynsec.store import group_said, roles_said

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.auth.dynsec.reading import Object

LOWEST = -PRIORITY_MAX


def create(doing: Doing) -> None:
    state = doing.state
    groupname = doing.new_name("groupname", "Group name", "Invalid/missing groupname")
    textname, textdescription = doing.texts()
    if groupname in state.groups:
        raise RefusedError("Group already exists")
    roles = doing.roles("Internal error") or {}
    group = state.groups[groupname] = Group(groupname)
    group.textname, group.textdescription = textname, textdescription
    for name, priority in roles.items():
        state.give_group_role(group, state.roles[name], priority)
    doing.changed(f"createGroup | groupname={groupname}")


def delete(doing: Doing) -> None:
    group = doing.group(doing.groupname())
    if group.groupname == doing.state.anonymous:
        raise RefusedError("Deleting the anonymous group is forbidden")
    kicks = doing.state.members(group)
    doing.state.remove_group(group)
    doing.changed(f"deleteGroup | groupname={group.groupname}", kicks)


def get(doing: Doing) -> "Object":
    group = doing.group(doing.groupname())
    doing.answers_as = "getGroup"
    doing.lines.append(f"getGroup | groupname={group.groupname}")
    return {"group": _said(group)}


def list_all(doing: Doing) -> "Object":
    groups = doing.state.groups
    return doing.listing(sorted(groups), "groups", lambda name: _said(groups[name]))


def modify(doing: Doing) -> None:
    state = doing.state
    group = doing.group(doing.groupname())
    line = f"modifyGroup | groupname={group.groupname}"
    roles = doing.roles()
    clients = _clients(doing)
    kicks = state.members(group)
    if clients is not None:
        for name in list(group.clients):
            state.leave(state.clients[name], group)
        for client, priority in clients:
            state.join(client, group, priority)
    doing.retext(group)
    if roles is not None:
        for name in list(group.roles):
            state.take_group_role(group, state.roles[name])
        for name, priority in roles.items():
            state.give_group_role(group, state.roles[name], priority)
    doing.changed(line, kicks | state.members(group))


def _clients(doing: Doing) -> "list[tuple[Client, int]] | None":
    listed = items(doing.of, "clients")
    if listed is None:
        return None
    found = []
    for one in listed:
        if isinstance(one, dict):
            name = text(one, "username")
            if name is None:
                raise RefusedError("'clients' contains an object with an invalid 'username'")
            if name not in doing.state.clients:
                raise RefusedError("'clients' contains an object with a 'username' that does not exist")
            found.append((doing.state.clients[name], doing.priority(one, LOWEST)))
    return found


def add_client(doing: Doing) -> None:
    username, groupname, priority = doing.username(), doing.groupname(), doing.priority(lowest=LOWEST)
    doing.kicks.add(username)           # also if the command is refused, as in Mosquitto
    client, group = doing.client(username), doing.group(groupname)
    if not doing.state.join(client, group, priority):
        raise RefusedError("Client is already in this group")
    doing.changed(f"addGroupClient | groupname={groupname} | username={username} | priority={priority}")


def remove_client(doing: Doing) -> None:
    username, groupname = doing.username(), doing.groupname()
    doing.kicks.add(username)
    client, group = doing.client(username), doing.group(groupname)
    doing.state.leave(client, group)
    doing.changed(f"removeGroupClient | groupname={groupname} | username={username}")


def add_role(doing: Doing) -> None:
    groupname, rolename, priority = doing.groupname(), doing.rolename(), doing.priority(lowest=LOWEST)
    group, role = doing.group(groupname), doing.role(rolename)
    if not doing.state.give_group_role(group, role, priority):
        raise RefusedError("Group is already in this role")
    doing.changed(f"addGroupRole | groupname={groupname} | rolename={rolename} | priority={priority}",
                  doing.state.members(group))


def remove_role(doing: Doing) -> None:
    groupname, rolename = doing.groupname(), doing.rolename()
    group, role = doing.group(groupname), doing.role(rolename)
    doing.state.take_group_role(group, role)
    doing.changed(f"removeGroupRole | groupname={groupname} | rolename={rolename}", doing.state.members(group))


def set_anonymous(doing: Doing) -> None:
    group = doing.group(doing.groupname())
    doing.state.anonymous = group.groupname
    doing.changed(f"setAnonymousGroup | groupname={group.groupname}", {None})


def get_anonymous(doing: Doing) -> "Object":
    doing.answers_as = "getAnonymousGroup"
    doing.lines.append("getAnonymousGroup")
    return {"group": {"groupname": doing.state.anonymous or ""}}


def _said(group: Group) -> "Object":
    said = group_said(group)
    said["clients"] = [{"username": name} for name in sorted(group.clients)]
    said["roles"] = roles_said(group.roles)
    return said
