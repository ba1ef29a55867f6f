"""Dynamic security: clients, groups and roles in the JSON file of Mosquitto's plugin, changed while the broker runs.

  directory.py   the state in force, with its file: logins read it, commands change it
  model.py       clients, groups, roles           reading.py  JSON as Mosquitto reads it
  store.py       the file                         first.py    the file that is generated if there is none
  compiled.py    -> rules for the data plane      commands.py, on_*.py  $CONTROL/dynamic-security/v1

Loaded only if a configuration uses it. No message passes through here.
"""
