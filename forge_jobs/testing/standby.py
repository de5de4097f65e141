"""A hot standby of a throw-away PostgreSQL server, which can become the primary.

::

    with PostgresServer() as primary, PostgresStandby(primary) as standby:
        primary.kill()
        standby.promote()
"""

from pathlib import Path

from forge_jobs.testing.ports import HOST
from forge_jobs.testing.servers import PostgresServer


class PostgresStandby(PostgresServer):
    """A server that repeats the commits of ``primary`` and takes reads, until promoted.

    A standby has the primary's programs, settings and password. Promoted, it stays a primary over
    :meth:`stop` and :meth:`start`. The start blocks for about a second, the promotion for less.

    :param primary: runs already
    :param folder: where the private folder is made
    """

    name = "The PostgreSQL standby"
    _ready = b"database system is ready to accept"

    def __init__(self, primary: PostgresServer, *, folder: Path | None = None) -> None:
        super().__init__(
            programs=primary._given_programs,
            durable=True,
            settings=primary._settings,
            folder=folder,
        )
        self.password = primary.password
        self._primary = primary

    def promote(self) -> None:
        """Make the standby a primary. Return when it takes writes.

        :raises ServerError: the standby refuses
        """
        self._run_program("pg_ctl", "promote", "--wait", what="did not become the primary")

    def _prepare_data(self) -> None:
        secret = self.folder / "passfile"
        secret.touch(mode=0o600)
        secret.write_text(f"*:*:*:*:{self.password}\n")
        self._own(secret)
        self._run_program(
            "pg_basebackup",
            f"--dbname=host={HOST} port={self._primary.port} user=postgres passfile={secret}",
            "--checkpoint=fast",
            "--write-recovery-conf",
            "--no-sync",
            what="could not copy its primary",
        )
