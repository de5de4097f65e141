"""The jobs of a SQL store: each method is one transaction script."""

from forge_jobs.storage.sql.database import Database


class SqlJobStore:
    """:class:`~forge_jobs.storage.protocols.JobStore` on SQL."""

    def __init__(self, database: Database) -> None:
        self.store_id = database.store_id
        self._database = database
