"""Commands about groups, and the one of clients without a user name. See commands.py."""

from mosq.auth.dynsec.context import Context, RefusedError
from mosq.auth.dynsec.model import PRIORITY_MAX, Client, Group
from mosq.auth.dynsec.reading import items, text
from mosq.auth.dynsec.store import group_fields, role_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.auth.dynsec.reading import Object

LOWEST = -PRIORITY_MAX


def create(context: Context) -> None:
    """createGroup: add a group, with optional texts and roles."""
    state = context.state
    groupname = context.new_name("groupname", "Group name", "Invalid/missing groupname")
    textname, textdescription = context.texts()
    if groupname in state.groups:
        raise RefusedError("Group already exists")
    roles = context.roles("Internal error") or {}
    group = state.groups[groupname] = Group(groupname)
    group.textname, group.textdescription = textname, textdescription
    for name, priority in roles.items():
        state.give_group_role(group, state.roles[name], priority)
    context.changed(f"createGroup | groupname={groupname}")


def delete(context: Context) -> None:
    """deleteGroup: remove a group and disconnect its clients. The anonymous group cannot be deleted."""
    group = context.group(context.groupname())
    if group.groupname == context.state.anonymous:
        raise RefusedError("Deleting the anonymous group is forbidden")
    kicks = context.state.members(group)
    context.state.remove_group(group)
    context.changed(f"deleteGroup | groupname={group.groupname}", kicks)


def get(context: Context) -> "Object":
    """getGroup: return a group with its roles and clients."""
    group = context.group(context.groupname())
    context.answers_as = "getGroup"
    context.lines.append(f"getGroup | groupname={group.groupname}")
    return {"group": _fields_of(group)}


def list_all(context: Context) -> "Object":
    """listGroups: return the names of groups, or with `verbose` the groups."""
    groups = context.state.groups
    return context.listing(sorted(groups), "groups", lambda name: _fields_of(groups[name]))


def modify(context: Context) -> None:
    """modifyGroup: replace the given fields, and disconnect the former and the new members."""
    state = context.state
    group = context.group(context.groupname())
    line = f"modifyGroup | groupname={group.groupname}"
    roles = context.roles()
    clients = _clients(context)
    kicks = state.members(group)
    if clients is not None:
        for name in list(group.clients):
            state.leave(state.clients[name], group)
        for client, priority in clients:
            state.join(client, group, priority)
    context.retext(group)
    if roles is not None:
        for name in list(group.roles):
            state.take_group_role(group, state.roles[name])
        for name, priority in roles.items():
            state.give_group_role(group, state.roles[name], priority)
    context.changed(line, kicks | state.members(group))


def _clients(context: Context) -> "list[tuple[Client, int]] | None":
    listed = items(context.fields, "clients")
    if listed is None:
        return None
    found = []
    for one in listed:
        if isinstance(one, dict):
            name = text(one, "username")
            if name is None:
                raise RefusedError("'clients' contains an object with an invalid 'username'")
            if name not in context.state.clients:
                raise RefusedError("'clients' contains an object with a 'username' that does not exist")
            found.append((context.state.clients[name], context.priority(one, LOWEST)))
    return found


def add_client(context: Context) -> None:
    """addGroupClient: add a client to a group, and disconnect the client."""
    username, groupname, priority = context.username(), context.groupname(), context.priority(lowest=LOWEST)
    context.kicks.add(username)         # also if the command is refused, as in Mosquitto
    client, group = context.client(username), context.group(groupname)
    if not context.state.join(client, group, priority):
        raise RefusedError("Client is already in this group")
    context.changed(f"addGroupClient | groupname={groupname} | username={username} | priority={priority}")


def remove_client(context: Context) -> None:
    """removeGroupClient: remove a client from a group, and disconnect the client."""
    username, groupname = context.username(), context.groupname()
    context.kicks.add(username)
    client, group = context.client(username), context.group(groupname)
    context.state.leave(client, group)
    context.changed(f"removeGroupClient | groupname={groupname} | username={username}")


def add_role(context: Context) -> None:
    """addGroupRole: give the group a role, and disconnect its clients."""
    groupname, rolename, priority = context.groupname(), context.rolename(), context.priority(lowest=LOWEST)
    group, role = context.group(groupname), context.role(rolename)
    if not context.state.give_group_role(group, role, priority):
        raise RefusedError("Group is already in this role")
    context.changed(f"addGroupRole | groupname={groupname} | rolename={rolename} | priority={priority}",
                    context.state.members(group))


def remove_role(context: Context) -> None:
    """removeGroupRole: take a role from the group, and disconnect its clients."""
    groupname, rolename = context.groupname(), context.rolename()
    group, role = context.group(groupname), context.role(rolename)
    context.state.take_group_role(group, role)
    context.changed(f"removeGroupRole | groupname={groupname} | rolename={rolename}", context.state.members(group))


def set_anonymous(context: Context) -> None:
    """setAnonymousGroup: set the group of clients without a user name, and disconnect these."""
    group = context.group(context.groupname())
    context.state.anonymous = group.groupname
    context.changed(f"setAnonymousGroup | groupname={group.groupname}", {None})


def get_anonymous(context: Context) -> "Object":
    """getAnonymousGroup: return the group of clients without a user name."""
    context.answers_as = "getAnonymousGroup"
    context.lines.append("getAnonymousGroup")
    return {"group": {"groupname": context.state.anonymous or ""}}


def _fields_of(group: Group) -> "Object":
    tree = group_fields(group)
    tree["clients"] = [{"username": name} for name in sorted(group.clients)]
    tree["roles"] = role_list(group.roles)
    return tree
