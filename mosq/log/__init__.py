"""Writes the broker's log: to files, stderr, stdout, syslog and topics, as plain lines or as JSON."""
