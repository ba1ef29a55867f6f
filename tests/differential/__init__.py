"""Send the same random sessions of several clients to mosq and to Mosquitto, and compare the answers."""
