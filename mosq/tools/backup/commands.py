"""The commands `mosq backup` and `mosq restore`."""

import os

import click

from mosq.tools.backup.archive import CONFIG, STORE, BackupError, Reader, shown
from mosq.tools.terminal import Bars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EXIT_OK, EXIT_FAILED, EXIT_CONFIG = 0, 1, 3

BACKUP_EPILOG = """\b
Examples:
  mosq backup -c /etc/mosquitto/mosquitto.conf /var/backups/mosq-monday.tar.gz
  mosq backup -c mosquitto.conf --without-secrets mosq.tar
  mosq restore --check /var/backups/mosq-monday.tar.gz       verify the archive

\b
The broker may run: the copy is the store of one moment; with workers (cluster_local), the store of each worker is of a
moment of its own, and the next start after a restore settles the rest. The archive has mode 0600, because it contains
password hashes and private keys. A name that ends with gz makes it compressed.

\b
Exit status:
  0  the archive is written and on the disk
  1  not written; nothing is left behind
  3  error in the configuration or the command line
"""
RESTORE_EPILOG = """\b
Examples:
  mosq restore --check mosq.tar.gz                        show the content and verify the checksums
  mosq restore -c /etc/mosquitto/mosquitto.conf mosq.tar.gz          the store, to where this configuration has it
  mosq restore --config-to / --data-to /var/lib/mosquitto mosq.tar.gz    on a new machine: everything
  mosq restore --config-to /tmp/old mosq.tar.gz           only the configuration, below /tmp/old

\b
Stop the broker first. A store that is there is replaced only with --force, and is kept beside the new one.

\b
Exit status:
  0  done
  1  not done; the old files are unchanged
  3  error in the configuration or the command line
"""


@click.command(epilog=BACKUP_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-c", "--config-file", "conf", metavar="FILE", required=True, help="Configuration of the broker.")
@click.option("--without-secrets", is_flag=True, help="Leave out password files, keys and dynamic security.")
@click.option("--force", is_flag=True, help="Replace an archive of this name.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
@click.argument("archive", metavar="ARCHIVE", type=click.Path())
def backup(conf: str, without_secrets: bool, force: bool, quiet: bool, archive: str) -> int:
    """Write the store, the streams and the configuration of a broker, running or not, into one archive."""
    from mosq.tools.backup.save import ConfigError, save

    bars = Bars(quiet)
    try:
        saved = save(conf, archive, not without_secrets, force, bars.begin)
    except ConfigError as error:
        click.echo(str(error), err=True)
        return EXIT_CONFIG
    except BackupError as error:
        bars.end()
        click.echo(f"Error: {error}", err=True)
        return EXIT_FAILED
    except KeyboardInterrupt:
        click.echo("\nInterrupted: no archive is written.", err=True)
        return EXIT_FAILED
    finally:
        bars.end()
    for one in saved.left_out:
        click.echo(f"Warning: not in the backup: {one}", err=True)
    for one in saved.unfinished:
        click.echo(f"Warning: {one} was left by a backup that was killed. Remove it.", err=True)
    if not quiet:
        click.echo(f"{archive}: {_content(saved.members)}, {os.stat(archive).st_size:,} bytes.")
    return EXIT_OK


def _content(members: "dict[str, Any]") -> str:
    config = sum(name.startswith(CONFIG) for name in members)
    store = [one["size"] for name, one in members.items() if name.startswith(STORE)]
    streams = {name.split("/")[2] for name in members if name.startswith(f"{STORE}streams/")}
    has = f"a store of {sum(store):,} bytes with {_counted(len(streams), 'stream')}" if store else "no store"
    return f"{_counted(config, 'file')} of the configuration, {has}"


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


@click.command(epilog=RESTORE_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-c", "--config-file", "conf", metavar="FILE", help="Restore the store to where this configuration has "
                                                                   "it.")
@click.option("--data-to", metavar="DIR", help="Restore the store to this folder (persistence_location).")
@click.option("--config-to", metavar="DIR", help="Restore the configuration below this folder; / for the old places.")
@click.option("--check", is_flag=True, help="Verify the archive and show its content; write nothing.")
@click.option("--force", is_flag=True, help="Replace files and a store that are there; they are kept.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
@click.argument("archive", metavar="ARCHIVE", type=click.Path())
def restore(                            # parameters: one for each option of the command
        conf: str | None, data_to: str | None, config_to: str | None, check: bool, force: bool, quiet: bool,
        archive: str) -> int:
    """Put the store and the configuration of a backup in place."""
    from mosq.config.errors import ConfigError

    if check == bool(conf or data_to or config_to) or (conf and data_to):
        raise click.UsageError("Expected --check, or where to restore to: `-c FILE` or `--data-to DIR` for the store, "
                               "`--config-to DIR` for the configuration.")
    bars = Bars(quiet)
    try:
        with Reader(archive) as reader:
            if not reader.has_manifest_sum and not quiet:
                click.echo(f"Note: {archive} was written by {reader.manifest['broker']}, which wrote no checksum of "
                           "the list of files. The checksums of the files are verified.", err=True)
            if check:
                names = list(reader.names)
                reader.copy(names, lambda name: None, bars.begin("Checking", reader.total_bytes(names)))
                bars.end()
                _show(reader)
            else:
                _restore(reader, conf, data_to, config_to, force, bars)
    except ConfigError as error:
        click.echo(str(error), err=True)
        return EXIT_CONFIG
    except BackupError as error:
        bars.end()
        click.echo(f"Error: {error}", err=True)
        return EXIT_FAILED
    finally:
        bars.end()
    return EXIT_OK


def _restore(                           # parameters: the options of the command
        reader: Reader, conf: str | None, data_to: str | None, config_to: str | None, force: bool, bars: Bars) -> None:
    from mosq.config.parser import load_config
    from mosq.server.process import find_account
    from mosq.server.storage import store_root
    from mosq.tools.backup.restore import restore_config, restore_store

    if conf or data_to:
        name = os.path.basename(reader.manifest["store"] or "mosquitto.db.store")
        owner = None
        if conf:
            config = load_config(conf)
            if config.cluster is not None:
                raise BackupError(f"{conf} is that of a node of a cluster, whose stores are in Redis. Restore without "
                                  "`cluster`, or restore the append-only file of Redis.")
            place = os.path.abspath(store_root(config))
            try:
                account = find_account(config.user)
            except (LookupError, ValueError) as error:
                raise BackupError(str(error)) from None
            owner = None if account is None else (account.uid, account.gid)
        else:
            place = os.path.abspath(os.path.join(data_to or "", name))
        names = reader.below(STORE)
        kept = restore_store(reader, place, owner, force, bars.begin("Restoring", reader.total_bytes(names)))
        bars.end()
        if not bars.quiet:
            click.echo(f"Store restored to {place}.")
            if kept is not None:
                click.echo(f"The old store is in {kept}.")
    if config_to:
        names = reader.below(CONFIG)
        replaced = restore_config(reader, config_to, force, bars.begin("Restoring", reader.total_bytes(names)))
        bars.end()
        if not bars.quiet:
            click.echo(f"{_counted(len(names), 'file')} of the configuration restored below {config_to}.")
            for path in replaced:
                click.echo(f"An old file is in {path}.")


def _show(reader: Reader) -> None:
    about = reader.manifest
    click.echo(f"{reader.path}: written by {about['broker']} at {shown(about.get('made_at'))}; "
               "all checksums are right.")
    for name, one in sorted(reader.names.items()):
        place = name[len(CONFIG) - 1:] if name.startswith(CONFIG) else f"{about['store']}/{name[len(STORE):]}"
        click.echo(f"  {one['size']:>14,}  {place!r}"[:200])
