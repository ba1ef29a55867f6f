"""Examine a mosquitto.conf before a broker runs with it, and report problems: `mosq doctor`."""
