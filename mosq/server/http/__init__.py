"""Serves `protocol http_api` listeners: Mosquitto's HTTP API and files. Loaded only if one is configured."""
