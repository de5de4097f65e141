"""Write the tables' part of the initial migrations: ``python -m tests.migrations.regenerate``.

Only while it is unreleased. Afterwards a change of the tables is a new migration.
"""

from pathlib import Path

from sqlalchemy.dialects import postgresql, sqlite

from forge_jobs.storage.sql import migrations
from forge_jobs.storage.sql.tables import metadata
from tests.migrations.ddl import FUNCTIONS, schema_ddl

if __name__ == "__main__":
    folder = Path(migrations.__path__[0])
    for name, dialect in (("sqlite", sqlite.dialect()), ("postgresql", postgresql.dialect())):  # type: ignore[no-untyped-call]
        file = folder / f"0001_initial.{name}.sql"
        _, mark, functions = file.read_text().partition(FUNCTIONS)
        file.write_text(schema_ddl(metadata, dialect) + mark + functions)
