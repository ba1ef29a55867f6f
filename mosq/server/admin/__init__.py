"""Answers the operators of a running broker by MQTT, on topics below `$CONTROL/`."""
