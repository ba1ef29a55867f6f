"""Logins and access decisions: password files, the threads that hash passwords, plugins. All of it runs outside the
data plane's loop.

Importing this package imports nothing else, so a broker without passwords and plugins does not pay for them.
"""
