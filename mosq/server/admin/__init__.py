"""What a running broker answers its operators by MQTT, below `$CONTROL/`."""
