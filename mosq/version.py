"""The version of mosq, and the Mosquitto release that mosq stands in for. Imports nothing, so any module may import it.
"""

VERSION = "0.2.0"
MOSQUITTO_VERSION = "2.1.2"     # the Mosquitto release that mosq copies: options, log lines, `$SYS` topics
