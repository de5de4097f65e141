"""The DDL of the tables as text."""

from sqlalchemy import Dialect, MetaData
from sqlalchemy.schema import CreateIndex, CreateTable


def schema_ddl(metadata: MetaData, dialect: Dialect) -> str:
    """CREATE statements for every table and index, each ended by a semicolon and a blank line."""
    statements: list[str] = []
    for table in metadata.sorted_tables:
        statements.append(str(CreateTable(table).compile(dialect=dialect)).strip())
        statements.extend(
            str(CreateIndex(index).compile(dialect=dialect)).strip()
            for index in sorted(table.indexes, key=lambda index: str(index.name))
            if index._ddl_if is None or index._ddl_if.dialect == dialect.name
        )
    lines = (
        line.rstrip().expandtabs(4) for text in statements for line in f"{text};\n".split("\n")
    )
    return "\n".join(lines)
