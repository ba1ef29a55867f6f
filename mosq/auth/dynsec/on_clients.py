"""Commands about clients. See commands.py."""

from mosq.auth.dynsec.doing import Doing, RefusedError
from mosq.auth.dynsec.model import NO_PRIORITY, Client, Group, in_order
from mosq.auth.dynsec.reading import is_utf8, items, text
from mosq.auth.dynsec.store import client_said, roles_said

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.auth.dynsec.reading import Object

MISSING = "Invalid/missing username"


def create(doing: Doing) -> None:
    state = doing.state
    username = doing.new_name("username", "Username", MISSING)
    password = doing.optional("password", "Invalid/missing password")
    clientid = doing.optional("clientid", "Invalid/missing client id")
    if clientid is not None and not is_utf8(clientid):
        raise RefusedError("Client ID not valid UTF-8")
    textname, textdescription = doing.texts()
    if username in state.clients:
        raise RefusedError("Client already exists")
    roles = doing.roles() or {}
    groups = [(doing.group(name), doing.priority(one)) for name, one in _groups(doing) if name is not None]
    client = state.clients[username] = Client(username)
    client.clientid, client.textname, client.textdescription = clientid or None, textname, textdescription
    if password is not None:
        doing.set_password(client, password)
    for name, priority in roles.items():
        state.give_client_role(client, state.roles[name], priority)
    for group, priority in groups:
        if not state.join(client, group, priority):
            state.remove_client(client)
            raise RefusedError("Internal error")        # the same group is listed twice
    doing.changed(f"createClient | username={username} | password={'no password' if password is None else '*****'}")


def delete(doing: Doing) -> None:
    client = doing.client(doing.needed("username", MISSING))
    doing.state.remove_client(client)
    doing.changed(f"deleteClient | username={client.username}", {client.username})


def get(doing: Doing) -> "Object":
    client = doing.client(doing.username())
    doing.answers_as = "getClient"
    doing.lines.append(f"getClient | username={client.username}")
    return {"client": _said(doing, client)}


def list_all(doing: Doing) -> "Object":
    clients = doing.state.clients
    return doing.listing(sorted(clients), "clients", lambda name: _said(doing, clients[name]))


def modify(doing: Doing) -> None:
    state, of = doing.state, doing.of
    client = doing.client(doing.username())
    roles = doing.roles()
    groups: list[tuple[Group, int]] | None = None
    if items(of, "groups") is not None:
        groups = []
        for name, one in _groups(doing):
            if name is None:
                raise RefusedError("'groups' contains an object with an invalid 'groupname'")
            if name not in state.groups:
                raise RefusedError("'groups' contains an object with a 'groupname' that does not exist")
            groups.append((state.groups[name], doing.priority(one)))
    if groups is not None:
        for name in list(client.groups):
            state.leave(client, state.groups[name])
        for group, priority in groups:
            state.join(client, group, priority)
    password, clientid = text(of, "password"), text(of, "clientid")
    if password:
        doing.set_password(client, password)
    if clientid is not None:
        client.clientid = clientid or None
    doing.retext(client)
    if roles is not None:
        for name in list(client.roles):
            state.take_client_role(client, state.roles[name])
        for name, priority in roles.items():
            state.give_client_role(client, state.roles[name], priority)
    doing.changed(f"modifyClient | username={client.username}", {client.username})


def set_password(doing: Doing) -> None:
    username = doing.username()
    password = doing.needed("password", "Invalid/missing password")
    if not password:
        raise RefusedError("Empty password is not allowed")
    doing.set_password(doing.client(username), password)
    doing.changed(f"setClientPassword | username={username} | password=******", {username})


def set_id(doing: Doing) -> None:
    username = doing.username()
    clientid = doing.optional("clientid", "Invalid/missing client ID")
    if clientid is not None and not is_utf8(clientid):
        raise RefusedError("Client ID not valid UTF-8")
    doing.client(username).clientid = clientid or None
    doing.changed(f"setClientId | username={username} | clientid={clientid or '(null)'}", {username})


def enable(doing: Doing) -> None:
    client = doing.client(doing.username())
    client.disabled = False
    doing.changed(f"enableClient | username={client.username}")


def disable(doing: Doing) -> None:
    client = doing.client(doing.username())
    client.disabled = True
    doing.changed(f"disableClient | username={client.username}", {client.username})


def add_role(doing: Doing) -> None:
    username, rolename, priority = doing.username(), doing.rolename(), doing.priority()
    client, role = doing.client(username), doing.role(rolename)
    if not doing.state.give_client_role(client, role, priority):
        raise RefusedError("Internal error")            # the client has the role already
    doing.changed(f"addClientRole | username={username} | rolename={rolename} | priority={priority}", {username})


def remove_role(doing: Doing) -> None:
    username, rolename = doing.username(), doing.rolename()
    client, role = doing.client(username), doing.role(rolename)
    doing.state.take_client_role(client, role)
    doing.changed(f"removeClientRole | username={username} | rolename={rolename}", {username})


def _groups(doing: Doing) -> "list[tuple[str | None, Object]]":
    """Return (name, or None if it is no text; the object) of each object in the list."""
    return [(text(one, "groupname"), one) for one in items(doing.of, "groups") or () if isinstance(one, dict)]


def _said(doing: Doing, client: Client) -> "Object":
    said = client_said(client)
    said["roles"] = roles_said(client.roles)
    said["groups"] = [{"groupname": name} if priority == NO_PRIORITY else {"groupname": name, "priority": priority}
                      for name, priority in in_order(client.groups)]
    said["connections"] = doing.connections(client)
    return said
