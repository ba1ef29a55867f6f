"""Commands about roles, their rules, and the default access. See commands.py."""

from mosq.auth.dynsec.context import Context, RefusedError
from mosq.auth.dynsec.model import BY_LOWER, DEFAULTS, Role, Rules
from mosq.auth.dynsec.reading import flag, is_filter, items, text
from mosq.auth.dynsec.store import add_rule as add_rule_of
from mosq.auth.dynsec.store import role_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.auth.dynsec.reading import Object


def set_default_access(context: Context) -> None:
    """setDefaultACLAccess: set the access that applies if no rule matches. Unknown types are logged only."""
    actions = items(context.fields, "acls")
    if actions is None:
        raise RefusedError("Missing/invalid actions array")
    known = {name.lower(): name for name in DEFAULTS}
    lines = []
    for one in actions:
        acltype, allow = (text(one, "acltype"), flag(one, "allow")) if isinstance(one, dict) else (None, None)
        if acltype is not None and allow is not None:
            if acltype.lower() in known:
                context.state.defaults[known[acltype.lower()]] = allow
            lines.append(f"setDefaultACLAccess | acltype={acltype} | allow={'true' if allow else 'false'}")
    context.changes = True
    context.lines += lines


def get_default_access(context: Context) -> "Object":
    """getDefaultACLAccess: return the access that applies if no rule matches."""
    context.answers_as = "getDefaultACLAccess"
    context.lines.append("getDefaultACLAccess")
    return {"acls": [{"acltype": name, "allow": context.state.defaults[name]} for name in DEFAULTS]}


def get_details(context: Context) -> "Object":
    """getDetails: return the numbers of clients, groups, roles and changes."""
    state = context.state
    context.answers_as = "getDetails"
    context.lines.append("getDetails")
    return {"clientCount": len(state.clients), "groupCount": len(state.groups), "roleCount": len(state.roles),
            "changeIndex": state.change_index}


def create(context: Context) -> None:
    """createRole: add a role, with optional texts and rules."""
    rolename = context.new_name("rolename", "Role name", "Invalid/missing rolename")
    textname, textdescription = context.texts()
    wildcards = flag(context.fields, "allowwildcardsubs")
    if wildcards is None and "allowwildcardsubs" in context.fields:
        raise RefusedError("Invalid allowwildcardsubs")
    if rolename in context.state.roles:
        raise RefusedError("Role already exists")
    role = context.state.roles[rolename] = Role(rolename)
    role.textname, role.textdescription = textname, textdescription
    role.wildcards = wildcards is not False
    _replace_rules(context, role)
    context.changed(f"createRole | rolename={rolename}")


def delete(context: Context) -> None:
    """deleteRole: remove a role and disconnect the clients that had it."""
    role = context.role(context.rolename())
    kicks = context.state.holders(role)
    context.state.remove_role(role)
    context.changed(f"deleteRole | rolename={role.rolename}", kicks)


def get(context: Context) -> "Object":
    """getRole: return a role with its rules."""
    role = context.role(context.rolename())
    context.answers_as = "getRole"
    context.lines.append(f"getRole | rolename={role.rolename}")
    return {"role": role_tree(role)}


def list_all(context: Context) -> "Object":
    """listRoles: return the names of roles, or with `verbose` the roles."""
    roles = context.state.roles
    return context.listing(sorted(roles), "roles", lambda name: role_tree(roles[name]))


def modify(context: Context) -> None:
    """modifyRole: replace the given fields; disconnect the role's clients if its rules change."""
    role = context.role(context.rolename(), "Role does not exist")
    context.retext(role)
    wildcards = flag(context.fields, "allowwildcardsubs")
    kicks = _replace_rules(context, role)
    if wildcards is not None and wildcards != role.wildcards:
        role.wildcards = wildcards
        kicks = True
    context.changed(f"modifyRole | rolename={role.rolename}", context.state.holders(role) if kicks else None)


def add_rule(context: Context) -> None:
    """addRoleACL: add a rule, and disconnect the role's clients."""
    role, kind, acltype = _rules_of(context)
    topic = _topic(context)
    if not add_rule_of(role, kind, context.fields, topic):
        raise RefusedError("ACL with this topic already exists")
    rule = role.rules.find(kind, topic)
    assert rule is not None
    context.changed(f"addRoleACL | rolename={role.rolename} | acltype={acltype} | topic={topic} | "
                    f"priority={rule.priority} | allow={'true' if rule.allow else 'false'}",
                    context.state.holders(role))


def remove_rule(context: Context) -> None:
    """removeRoleACL: remove a rule, and disconnect the role's clients."""
    role, kind, acltype = _rules_of(context)
    topic = _topic(context)
    if not role.rules.remove(kind, topic):
        raise RefusedError("ACL not found")
    context.changed(f"removeRoleACL | rolename={role.rolename} | acltype={acltype} | topic={topic}",
                    context.state.holders(role))


def _rules_of(context: Context) -> tuple[Role, int, str]:
    role = context.role(context.rolename())
    acltype = context.needed("acltype", "Invalid/missing acltype")
    kind = BY_LOWER.get(acltype.lower())
    if kind is None:
        raise RefusedError("Unknown acltype")
    return role, kind, acltype


def _topic(context: Context) -> str:
    topic = context.needed("topic", "Invalid/missing topic", "Topic not valid UTF-8")
    if not is_filter(topic):
        raise RefusedError("Invalid ACL topic")
    return topic


def _replace_rules(context: Context, role: Role) -> bool:
    """Replace the role's rules by those of the command. As in Mosquitto, invalid rules and second rules for a topic are
    ignored, and a rule whose topic is no filter is kept and matches nothing."""
    listed = items(context.fields, "acls")
    if listed is None:
        return False
    role.rules = Rules()
    for one in listed:
        if isinstance(one, dict):
            kind, topic = BY_LOWER.get((text(one, "acltype") or "").lower()), text(one, "topic")
            if kind is not None and topic:
                add_rule_of(role, kind, one, topic)
    return True
