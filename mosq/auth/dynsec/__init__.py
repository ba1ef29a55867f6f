"""Dynamic security: clients, groups and roles in a JSON file of Mosquitto's plugin, changed while the broker runs.

    directory.py   what is in force, with its file: log-ins ask it, commands change it
    model.py       clients, groups, roles           reading.py  JSON as Mosquitto takes it
    store.py       the file                         first.py    the file that is made where there is none
    compiled.py    -> rules for the data plane      commands.py, on_*.py  $CONTROL/dynamic-security/v1

Loaded only where a configuration asks for it. No message passes through here.
"""
