"""Who may come in: password files, the pool that hashes, plugins. Everything here runs off the data plane's loop.

Nothing is imported by importing this package: a broker without passwords and plugins never pays for them.
"""
