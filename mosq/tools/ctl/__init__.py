"""`mosq ctl`: the commands of mosquitto_ctrl, and those of mosq's own control API. Speaks MQTT to a broker of another
process, mosq or Mosquitto, and knows nothing of their internals."""
