"""Bring the tables of earlier versions of mosq to this one."""
