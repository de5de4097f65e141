"""Write the initial migration from the tables: ``python -m tests.migrations.regenerate``.

Only while it is unreleased. Afterwards a change of the tables is a new migration.
"""

from pathlib import Path

from sqlalchemy.dialects import sqlite

from forge_jobs.storage.sql import migrations
from forge_jobs.storage.sql.tables import metadata
from tests.migrations.ddl import schema_ddl

if __name__ == "__main__":
    folder = Path(migrations.__path__[0])
    (folder / "0001_initial.sqlite.sql").write_text(schema_ddl(metadata, sqlite.dialect()))
