"""Reads ``mosquitto.conf`` files. Knows options and their rules; knows neither the engine nor the command line."""
