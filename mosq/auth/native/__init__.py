"""Native plugins: libraries that were compiled for Mosquitto. docs/plugins-c.md describes them."""
