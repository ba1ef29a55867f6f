"""Properties of MQTT 5 on the command line: `-D COMMAND NAME VALUE`, or `-D COMMAND user-property NAME VALUE`."""

from paho.mqtt import MQTTException
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from mosq.tools.clients.errors import ClientError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

COMMANDS = {"CONNECT": PacketTypes.CONNECT, "PUBLISH": PacketTypes.PUBLISH, "SUBSCRIBE": PacketTypes.SUBSCRIBE,
            "UNSUBSCRIBE": PacketTypes.UNSUBSCRIBE, "DISCONNECT": PacketTypes.DISCONNECT,
            "WILL": PacketTypes.WILLMESSAGE}
USER_PROPERTY = "user-property"
INTEGER_MAX = {"Byte": 0xFF, "Two Byte Integer": 0xFFFF, "Four Byte Integer": 0xFFFFFFFF,
               "Variable Byte Integer": 0x0FFFFFFF}
STRING_MAX = 0xFFFF     # bytes [v5 1.5.4]


def take_properties(arguments: list[str], with_value: frozenset[str]) -> tuple[list[str], list[list[str]]]:
    """Return the arguments without `-D` and its words, and these words. `with_value`: the options that have a value,
    which may be `-D`. Raises ClientError."""
    rest: list[str] = []
    found: list[list[str]] = []
    words = iter(arguments)
    for word in words:
        if word not in ("-D", "--property"):
            rest.append(word)
            if word in with_value:
                rest.extend(value for value in (next(words, None),) if value is not None)
            continue
        one = [value for value in (next(words, None), next(words, None), next(words, None)) if value is not None]
        if len(one) == 3 and one[1] == USER_PROPERTY:
            one.extend(value for value in (next(words, None),) if value is not None)
        if len(one) < 3 or (one[1] == USER_PROPERTY and len(one) < 4):
            raise ClientError("Error: --property argument given but not enough arguments specified. Expected "
                              "-D COMMAND NAME VALUE, or -D COMMAND user-property NAME VALUE.")
        found.append(one)
    return rest, found


def empty(packet: int) -> Properties:
    """Return no properties of a packet type."""
    return Properties(packet)       # type: ignore[no-untyped-call]


def properties_of(given: "Iterable[list[str]]") -> dict[str, Properties]:
    """Return the properties of each command. Raises ClientError."""
    made: dict[str, Properties] = {}
    for command, name, *values in given:
        packet = COMMANDS.get(command.upper())
        if packet is None:
            raise ClientError("Error: Invalid command given in --property argument. Expected one of "
                              f"{', '.join(COMMANDS)}.")
        one = made.setdefault(command.upper(), empty(packet))
        _add(one, command.upper(), name, values)
    return made


def _add(one: Properties, command: str, name: str, values: list[str]) -> None:
    compressed = "".join(word.capitalize() for word in name.split("-"))
    ident = one.getIdentFromName(compressed)        # type: ignore[no-untyped-call]
    if ident < 0:
        raise ClientError(f"Error: Invalid property name given in --property argument: {name!r}. Expected a name of "
                          "MQTT 5 with hyphens, such as content-type.")
    if one.packetType not in one.properties[ident][1]:
        raise ClientError(f"Error: {name} property not allowed for {command} in --property argument.")
    kind = one.types[one.properties[ident][0]]
    try:
        setattr(one, compressed, _value(kind, name, values))
    except MQTTException as error:
        raise ClientError(f"Error: {error}.") from None


def _value(kind: str, name: str, values: list[str]) -> "int | str | bytes | tuple[str, str]":
    if kind in INTEGER_MAX:
        if not values[0].isascii() or not values[0].isdigit():
            raise ClientError(f"Error: Property value ({values[0]}) of {name} is not a number.")
        number = int(values[0][:20])
        if number > INTEGER_MAX[kind]:
            raise ClientError(f"Error: Property value ({values[0]}) out of range for property {name}. Expected at "
                              f"most {INTEGER_MAX[kind]}.")
        return number
    if any(len(value.encode(errors="surrogateescape")) > STRING_MAX for value in values):
        raise ClientError(f"Error: Property value too long for property {name}. Expected at most {STRING_MAX} bytes.")
    if kind == "Binary Data":
        return values[0].encode(errors="surrogateescape")
    try:
        for value in values:
            value.encode()
    except UnicodeEncodeError:
        raise ClientError(f"Error: Property value of {name} is not UTF-8.") from None
    return (values[0], values[1]) if kind == "UTF-8 String Pair" else values[0]
