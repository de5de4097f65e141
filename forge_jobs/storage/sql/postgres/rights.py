"""The privileges that the role of a URL lacks. The server's own refusal says less."""

from collections.abc import Iterable

# By privilege and object. A schema without the store's tables must let the role create them. A
# program that only runs jobs migrates nothing.
MISSING = r"""
WITH place AS (SELECT to_regnamespace(quote_ident($1)) AS schema),
relations AS (
    SELECT c.oid, c.relname, c.relkind
    FROM pg_class c JOIN place ON c.relnamespace = place.schema
    WHERE c.relname LIKE 'forge\_%' AND c.relkind IN ('r', 'S')
)
SELECT 'CREATE' AS privilege, 'the database' AS object FROM place
WHERE schema IS NULL AND NOT has_database_privilege(current_database(), 'CREATE')
UNION ALL
SELECT wanted, 'the schema' FROM place, unnest(ARRAY['USAGE', 'CREATE']) AS wanted
WHERE schema IS NOT NULL AND NOT has_schema_privilege(schema, wanted)
  AND (wanted = 'USAGE' OR NOT EXISTS (SELECT FROM relations))
UNION ALL
SELECT wanted, relname
FROM relations, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS wanted
WHERE relkind = 'r' AND NOT has_table_privilege(oid, wanted)
  AND (wanted = 'SELECT' OR relname <> 'forge_migrations')
UNION ALL
SELECT 'USAGE', relname FROM relations
WHERE relname NOT LIKE 'forge\_migrations\_%'
  AND CASE relkind WHEN 'S' THEN NOT has_sequence_privilege(oid, 'USAGE') ELSE false END
"""
"""Takes the schema."""

_NAMED = 3


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
