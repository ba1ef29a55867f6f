"""The command `mosq pipeline` and its subcommands. A starting broker imports none of these modules."""
