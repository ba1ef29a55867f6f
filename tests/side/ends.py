"""Define messages of both brokers when they do not start or only check; other tools look for these words."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class End:
    ours: str                                   # part of the message of mosq
    theirs: dict[str, str] = field(default_factory=dict)       # version -> different message of Mosquitto
    status: dict[str, int] = field(default_factory=dict)       # version -> different exit status of Mosquitto
    why: str = ""
    not_on: str = ""                            # versions that start anyway, or do not know the option


ROWS = {
    "no such file": End("Error: Unable to open config file"),
    "unknown option": End("Error: Unknown configuration variable 'nonsense'.", {"2.0": 'Error: Unknown configuration variable "nonsense".'}),
    "bad number": End("Error: 'max_connections' value not a number.", not_on="2.0"),
    "bad bool": End("Error: Invalid 'allow_anonymous' value (maybe)", {"2.0": "Error: Invalid allow_anonymous value (maybe)"}),
    "port out of range": End("Error: Invalid 'port' value (70000).", {"2.0": "Error: Invalid port value (70000)."}),
    "empty value": End("Error: Empty 'acl_file' value in configuration", {"2.0": "Error: Empty acl_file value in configuration."}),
    "missing acl_file": End("Error: Unable to open acl_file", status={"2.0": 13, "2.1": 13}, why="row:exit statuses"),
    "bad acl_file": End("Error: Invalid line in acl_file"),
    "unknown option of the command line": End("--nonsense"),
    "a port that is none": End("Error: Invalid"),
    "-c without a file": End("Error: ", {"2.0": "Error: -c argument given", "2.1": "Error: -c argument given"}),
    "an address that is not ours": End("Cannot assign requested address"),
    "a pid file that cannot be written": End("Error: Unable to write pid file", status={"2.0": 1, "2.1": 14}, why="row:exit statuses"),
    "a user that does not exist": End("nobody-of-this-name", status={"2.0": 1, "2.1": 3}),
    "--test-config": End("Configuration file is OK.", not_on="2.0"),
    "--test-config of a bad file": End("Error: ", not_on="2.0"),
    "help": End("MQTT", status={"2.0": 3}),
}
