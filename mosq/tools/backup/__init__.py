"""`mosq backup` and `mosq restore`: one archive with the store, the streams and the configuration of a broker."""
