"""`protocol http_api` listeners: what Mosquitto's HTTP API tells, and files. Loaded only where one is configured."""
