"""mosq: an MQTT broker that takes Mosquitto's place. Importing this package loads nothing else: start-up time is a feature."""

__version__ = "0.1.0"
