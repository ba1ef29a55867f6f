"""Commands about roles, their rules, and the default access. See commands.py."""

from mosq.auth.dynsec.doing import Doing, RefusedError
from mosq.auth.dynsec.model import BY_LOWER, DEFAULTS, Role, Rules
from mosq.auth.dynsec.reading import flag, is_filter, items, text
from mosq.auth.dynsec.store import add_rule as add_rule_of
from mosq.auth.dynsec.store import role_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.auth.dynsec.reading import Object


def set_default_access(doing: Doing) -> None:
    actions = items(doing.of, "acls")
    if actions is None:
        raise RefusedError("Missing/invalid actions array")
    known = {name.lower(): name for name in DEFAULTS}
    lines = []
    for one in actions:
        acltype, allow = (text(one, "acltype"), flag(one, "allow")) if isinstance(one, dict) else (None, None)
        if acltype is not None and allow is not None:
            if acltype.lower() in known:
                doing.state.defaults[known[acltype.lower()]] = allow
            lines.append(f"setDefaultACLAccess | acltype={acltype} | allow={'true' if allow else 'false'}")
    doing.changes = True
    doing.lines += lines


def get_default_access(doing: Doing) -> "Object":
    doing.answers_as = "getDefaultACLAccess"
    doing.lines.append("getDefaultACLAccess")
    return {"acls": [{"acltype": name, "allow": doing.state.defaults[name]} for name in DEFAULTS]}


def get_details(doing: Doing) -> "Object":
    state = doing.state
    doing.answers_as = "getDetails"
    doing.lines.append("getDetails")
    return {"clientCount": len(state.clients), "groupCount": len(state.groups), "roleCount": len(state.roles),
            "changeIndex": state.change_index}


def create(doing: Doing) -> None:
    rolename = doing.new_name("rolename", "Role name", "Invalid/missing rolename")
    textname, textdescription = doing.texts()
    wildcards = flag(doing.of, "allowwildcardsubs")
    if wildcards is None and "allowwildcardsubs" in doing.of:
        raise RefusedError("Invalid allowwildcardsubs")
    if rolename in doing.state.roles:
        raise RefusedError("Role already exists")
    role = doing.state.roles[rolename] = Role(rolename)
    role.textname, role.textdescription = textname, textdescription
    role.wildcards = wildcards is not False
    _rules_given(doing, role)
    doing.changed(f"createRole | rolename={rolename}")


def delete(doing: Doing) -> None:
    role = doing.role(doing.rolename())
    kicks = doing.state.holders(role)
    doing.state.remove_role(role)
    doing.changed(f"deleteRole | rolename={role.rolename}", kicks)


def get(doing: Doing) -> "Object":
    role = doing.role(doing.rolename())
    doing.answers_as = "getRole"
    doing.lines.append(f"getRole | rolename={role.rolename}")
    return {"role": role_tree(role)}


def list_all(doing: Doing) -> "Object":
    roles = doing.state.roles
    return doing.listing(sorted(roles), "roles", lambda name: role_tree(roles[name]))


def modify(doing: Doing) -> None:
    role = doing.role(doing.rolename(), "Role does not exist")
    doing.retext(role)
    wildcards = flag(doing.of, "allowwildcardsubs")
    kicks = _rules_given(doing, role)
    if wildcards is not None and wildcards != role.wildcards:
        role.wildcards = wildcards
        kicks = True
    doing.changed(f"modifyRole | rolename={role.rolename}", doing.state.holders(role) if kicks else None)


def add_rule(doing: Doing) -> None:
    role, kind, acltype = _rules_meant(doing)
    topic = _topic(doing)
    if not add_rule_of(role, kind, doing.of, topic):
        raise RefusedError("ACL with this topic already exists")
    rule = role.rules.by_kind[kind][topic]
    doing.changed(f"addRoleACL | rolename={role.rolename} | acltype={acltype} | topic={topic} | "
                  f"priority={rule.priority} | allow={'true' if rule.allow else 'false'}", doing.state.holders(role))


def remove_rule(doing: Doing) -> None:
    role, kind, acltype = _rules_meant(doing)
    topic = _topic(doing)
    if not role.rules.remove(kind, topic):
        raise RefusedError("ACL not found")
    doing.changed(f"removeRoleACL | rolename={role.rolename} | acltype={acltype} | topic={topic}",
                  doing.state.holders(role))


def _rules_meant(doing: Doing) -> tuple[Role, int, str]:
    role = doing.role(doing.rolename())
    acltype = doing.needed("acltype", "Invalid/missing acltype")
    kind = BY_LOWER.get(acltype.lower())
    if kind is None:
        raise RefusedError("Unknown acltype")
    return role, kind, acltype


def _topic(doing: Doing) -> str:
    topic = doing.needed("topic", "Invalid/missing topic", "Topic not valid UTF-8")
    if not is_filter(topic):
        raise RefusedError("Invalid ACL topic")
    return topic


def _rules_given(doing: Doing, role: Role) -> bool:
    """Replace the role's rules by those of the command. As in Mosquitto, invalid rules and second rules for a topic are
    ignored, and a rule whose topic is no filter is kept and matches nothing."""
    listed = items(doing.of, "acls")
    if listed is None:
        return False
    role.rules = Rules()
    for one in listed:
        if isinstance(one, dict):
            kind, topic = BY_LOWER.get((text(one, "acltype") or "").lower()), text(one, "topic")
            if kind is not None and topic:
                add_rule_of(role, kind, one, topic)
    return True
