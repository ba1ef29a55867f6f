"""Fuzz whole sessions: several clients of a running broker, several packets each, reloads and time between them."""
