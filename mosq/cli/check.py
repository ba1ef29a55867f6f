"""`mosq -c FILE --test-config`: checks a configuration and starts nothing. Init scripts call it before each start, so
this module does not import `click`, and imports what the other checks need only after the file itself is correct."""

import sys

from mosq.cli.start import EXIT_CONFIG

EXIT_OK, EXIT_FAILED = 0, 1


def check(config_file: str, overrides: tuple[str, ...] = ()) -> int:
    """Check a configuration and its acl_file; return the exit status. Writes nothing to disk. Problems in files that
    Mosquitto does not check, such as certificates, cause warnings only."""
    from mosq.config.errors import ConfigError
    from mosq.config.parser import load_config

    try:
        config = load_config(config_file, overrides=overrides)
        from mosq.auth.dynsec.check import readable_directory
        from mosq.config.files import file_problems, readable_acls
        from mosq.server import process
        from mosq.server.unkept import must_stop, unkept_line, unusable
        from mosq.tools.doctor.rights import broker_account, troubles

        acls, account = readable_acls(config), broker_account(config)
        with process.Acting(account):
            readable_directory(config)
            wrong, unkept = must_stop(config), unusable(config)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_CONFIG
    if wrong is not None:
        print(f"Error: {wrong}", file=sys.stderr)
        return EXIT_FAILED
    from mosq.auth.loading import unloadable
    from mosq.auth.native.check import unloadable_native
    from mosq.config.acl import acl_warnings
    from mosq.config.plugin import all_plugins
    from mosq.tools.extras import missing_packages

    refused = [f"{why} ({plugin.origin})" for plugin in all_plugins(config)
               if (why := unloadable(plugin) or unloadable_native(plugin, account)) is not None]
    patterns = [line for rules in acls.values() for line in acl_warnings(rules)]
    store = [] if unkept is None else [unkept_line(config, unkept)]
    for _, notice in config.notices:
        print(notice, file=sys.stderr)
    rights = [f"{one.text}. {one.advice}" for one in troubles(config) if one.stops]
    for warning in (*config.warnings, *patterns, *store, *file_problems(config), *rights):
        print(f"Warning: {warning}", file=sys.stderr)
    packages = [f"{text} ({origin})" for text, origin in missing_packages(config)]
    for why in (*refused, *packages):
        print(f"Error: The broker does not start with this file: {why}", file=sys.stderr)
    if refused or packages:
        return EXIT_CONFIG if refused else EXIT_FAILED
    print("Configuration file is OK.")
    return EXIT_OK
