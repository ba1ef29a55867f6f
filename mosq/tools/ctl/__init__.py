"""`mosq ctl`: what mosquitto_ctrl does, and what mosq's own control API adds. Speaks MQTT to a broker of another
process, mosq or Mosquitto; knows nothing of the inside of either.
"""
