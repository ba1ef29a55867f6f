"""`mosq pub` and `mosq sub`: the options, output and exit statuses of mosquitto_pub and mosquitto_sub, on paho's
client. They know any broker in another process, and nothing of its internals."""
