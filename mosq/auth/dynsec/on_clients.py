"""Commands about clients. See commands.py."""

from mosq.auth.dynsec.context import Context, RefusedError
from mosq.auth.dynsec.model import NO_PRIORITY, Client, Group, in_order
from mosq.auth.dynsec.reading import is_utf8, items, text
from mosq.auth.dynsec.store import client_fields, role_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.auth.dynsec.reading import Object

MISSING = "Invalid/missing username"


def create(context: Context) -> None:
    """createClient: add a client, with optional password, client id, texts, roles and groups."""
    state = context.state
    username = context.new_name("username", "Username", MISSING)
    password = context.optional("password", "Invalid/missing password")
    clientid = context.optional("clientid", "Invalid/missing client id")
    if clientid is not None and not is_utf8(clientid):
        raise RefusedError("Client ID not valid UTF-8")
    textname, textdescription = context.texts()
    if username in state.clients:
        raise RefusedError("Client already exists")
    roles = context.roles() or {}
    groups = [(context.group(name), context.priority(one)) for name, one in _groups(context) if name is not None]
    client = state.clients[username] = Client(username)
    client.clientid, client.textname, client.textdescription = clientid or None, textname, textdescription
    if password is not None:
        context.set_password(client, password)
    for name, priority in roles.items():
        state.give_client_role(client, state.roles[name], priority)
    for group, priority in groups:
        if not state.join(client, group, priority):
            state.remove_client(client)
            raise RefusedError("Internal error")        # the same group is listed twice
    context.changed(f"createClient | username={username} | password={'no password' if password is None else '*****'}")


def delete(context: Context) -> None:
    """deleteClient: remove a client and disconnect it."""
    client = context.client(context.needed("username", MISSING))
    context.state.remove_client(client)
    context.changed(f"deleteClient | username={client.username}", {client.username})


def get(context: Context) -> "Object":
    """getClient: return a client with its roles, groups and connections."""
    client = context.client(context.username())
    context.answers_as = "getClient"
    context.lines.append(f"getClient | username={client.username}")
    return {"client": _fields_of(context, client)}


def list_all(context: Context) -> "Object":
    """listClients: return the names of clients, or with `verbose` the clients."""
    clients = context.state.clients
    return context.listing(sorted(clients), "clients", lambda name: _fields_of(context, clients[name]))


def modify(context: Context) -> None:
    """modifyClient: replace the given fields, and disconnect the client."""
    state, fields = context.state, context.fields
    client = context.client(context.username())
    roles = context.roles()
    groups: list[tuple[Group, int]] | None = None
    if items(fields, "groups") is not None:
        groups = []
        for name, one in _groups(context):
            if name is None:
                raise RefusedError("'groups' contains an object with an invalid 'groupname'")
            if name not in state.groups:
                raise RefusedError("'groups' contains an object with a 'groupname' that does not exist")
            groups.append((state.groups[name], context.priority(one)))
    if groups is not None:
        for name in list(client.groups):
            state.leave(client, state.groups[name])
        for group, priority in groups:
            state.join(client, group, priority)
    password, clientid = text(fields, "password"), text(fields, "clientid")
    if password:
        context.set_password(client, password)
    if clientid is not None:
        client.clientid = clientid or None
    context.retext(client)
    if roles is not None:
        for name in list(client.roles):
            state.take_client_role(client, state.roles[name])
        for name, priority in roles.items():
            state.give_client_role(client, state.roles[name], priority)
    context.changed(f"modifyClient | username={client.username}", {client.username})


def set_password(context: Context) -> None:
    """setClientPassword: replace the password, and disconnect the client."""
    username = context.username()
    password = context.needed("password", "Invalid/missing password")
    if not password:
        raise RefusedError("Empty password is not allowed")
    context.set_password(context.client(username), password)
    context.changed(f"setClientPassword | username={username} | password=******", {username})


def set_id(context: Context) -> None:
    """setClientId: set or remove the required client id, and disconnect the client."""
    username = context.username()
    clientid = context.optional("clientid", "Invalid/missing client ID")
    if clientid is not None and not is_utf8(clientid):
        raise RefusedError("Client ID not valid UTF-8")
    context.client(username).clientid = clientid or None
    context.changed(f"setClientId | username={username} | clientid={clientid or '(null)'}", {username})


def enable(context: Context) -> None:
    """enableClient: accept logins of the client again."""
    client = context.client(context.username())
    client.disabled = False
    context.changed(f"enableClient | username={client.username}")


def disable(context: Context) -> None:
    """disableClient: refuse logins of the client, and disconnect it."""
    client = context.client(context.username())
    client.disabled = True
    context.changed(f"disableClient | username={client.username}", {client.username})


def add_role(context: Context) -> None:
    """addClientRole: give the client a role, and disconnect it."""
    username, rolename, priority = context.username(), context.rolename(), context.priority()
    client, role = context.client(username), context.role(rolename)
    if not context.state.give_client_role(client, role, priority):
        raise RefusedError("Internal error")            # the client has the role already
    context.changed(f"addClientRole | username={username} | rolename={rolename} | priority={priority}", {username})


def remove_role(context: Context) -> None:
    """removeClientRole: take a role from the client, and disconnect it."""
    username, rolename = context.username(), context.rolename()
    client, role = context.client(username), context.role(rolename)
    context.state.take_client_role(client, role)
    context.changed(f"removeClientRole | username={username} | rolename={rolename}", {username})


def _groups(context: Context) -> "list[tuple[str | None, Object]]":
    """Return (name, or None if it is no text; the object) of each object in the list."""
    return [(text(one, "groupname"), one) for one in items(context.fields, "groups") or () if isinstance(one, dict)]


def _fields_of(context: Context, client: Client) -> "Object":
    tree = client_fields(client)
    tree["roles"] = role_list(client.roles)
    tree["groups"] = [{"groupname": name} if priority == NO_PRIORITY else {"groupname": name, "priority": priority}
                      for name, priority in in_order(client.groups)]
    tree["connections"] = context.connections(client)
    return tree
