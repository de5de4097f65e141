"""The privileges that the role of a URL lacks. The server's own refusal says less."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import text

from forge_jobs.storage.sql.base.transaction import Tx

# By privilege and object. A schema without the store's tables must let the role create them. A
# program that only runs jobs migrates nothing.
MISSING = r"""
WITH place AS (SELECT to_regnamespace(quote_ident($1)) AS schema),
relations AS (
    SELECT c.oid, c.relname, c.relkind
    FROM pg_class c JOIN place ON c.relnamespace = place.schema
    WHERE c.relname LIKE 'forge\_%' AND c.relkind IN ('r', 'S')
)
SELECT 'CREATE' AS privilege, 'the database' AS object, 'database' AS kind FROM place
WHERE schema IS NULL AND NOT has_database_privilege(current_database(), 'CREATE')
UNION ALL
SELECT wanted, 'the schema', 'schema' FROM place, unnest(ARRAY['USAGE', 'CREATE']) AS wanted
WHERE schema IS NOT NULL AND NOT has_schema_privilege(schema, wanted)
  AND (wanted = 'USAGE' OR NOT EXISTS (SELECT FROM relations))
UNION ALL
SELECT wanted, relname, 'table'
FROM relations, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS wanted
WHERE relkind = 'r' AND NOT has_table_privilege(oid, wanted)
  AND (wanted = 'SELECT' OR relname <> 'forge_migrations')
UNION ALL
SELECT 'USAGE', relname, 'sequence' FROM relations
WHERE relname NOT LIKE 'forge\_migrations\_%'
  AND CASE relkind WHEN 'S' THEN NOT has_sequence_privilege(oid, 'USAGE') ELSE false END
UNION ALL
SELECT 'EXECUTE', proname, 'function' FROM pg_proc JOIN place ON pronamespace = place.schema
WHERE (proname LIKE 'forge\_claim\_%' OR proname = 'forge_take_turns')
  AND NOT has_function_privilege(pg_proc.oid, 'EXECUTE')
"""
"""Takes the schema."""

_MISSING = text(MISSING.replace("$1", ":schema"))
_PLACE = text(r"""
SELECT quote_ident(:schema) AS schema, quote_ident(current_database()) AS database,
  NOT EXISTS (
    SELECT FROM pg_class WHERE relnamespace = to_regnamespace(quote_ident(:schema))
      AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND relname NOT LIKE 'forge\_%'
  ) AS alone
""")

_NAMED = 3


def lacking(tx: Tx, schema: str) -> str:
    """See ``Storage``."""
    missing = tx.execute(_MISSING, {"schema": schema}).all()
    if not missing:
        return ""
    place = tx.execute(_PLACE, {"schema": schema}).one()
    wanted: dict[tuple[str, str], list[str]] = {}
    for privilege, name, kind in missing:
        wanted.setdefault((kind, name), []).append(privilege)
    objects: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (kind, name), privileges in wanted.items():
        objects.setdefault((kind, tuple(sorted(privileges))), []).append(name)
    grants = [
        f"GRANT {', '.join(privileges)} ON {_granted(kind, sorted(names), place)} TO ROLE"
        for (kind, privileges), names in objects.items()
    ]
    words = in_words((privilege, name) for privilege, name, _ in missing)
    return f"the role of the URL lacks a privilege: {words}; run {'; '.join(grants)}"


def _granted(kind: str, names: list[str], place: Any) -> str:
    if kind == "database":
        return f"DATABASE {place.database}"
    if kind == "schema":
        return f"SCHEMA {place.schema}"
    if len(names) > _NAMED and place.alone:
        return f"ALL {kind.upper()}S IN SCHEMA {place.schema}"
    return f"{kind.upper()} {', '.join(f'{place.schema}.{name}' for name in names)}"


def in_words(missing: Iterable[tuple[str, str]]) -> str:
    """Return the pairs of privilege and object as people grant them, "" when there are none."""
    objects: dict[str, list[str]] = {}
    for privilege, name in missing:
        objects.setdefault(privilege, []).append(name)
    privileges: dict[tuple[str, ...], list[str]] = {}
    for privilege, names in objects.items():
        privileges.setdefault(tuple(sorted(names)), []).append(privilege)
    return "; ".join(
        f"{', '.join(wanted)} on {_names(names)}" for names, wanted in privileges.items()
    )


def _names(names: tuple[str, ...]) -> str:
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + rest
