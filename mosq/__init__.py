"""mosq: an MQTT broker that takes Mosquitto's place. Importing the package loads nothing else: it starts fast."""

__version__ = "0.1.0"
