"""Upgrades of a running broker without dropping a connection."""
