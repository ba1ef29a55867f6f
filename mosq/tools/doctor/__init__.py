"""Examines a mosquitto.conf before a broker runs with it, and reports what needs attention: `mosq doctor`."""
