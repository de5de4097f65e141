"""For programs whose own schema is migrated by Alembic, in the database that holds our tables too.

``forge-jobs migrate`` makes our tables, so Alembic must leave them alone. By default autogenerate
proposes to drop all tables that the program's own metadata lacks.
"""

from typing import Any

_OURS = "forge_"


def include_object(
    object: Any, name: str | None, type_: str, reflected: bool, compare_to: Any
) -> bool:
    """Return True when Alembic is to look at an object of the database, False for our tables.

    Give this function to ``context.configure`` in ``env.py``, or call the function from a hook::

        from forge_jobs.alembic import include_object

        context.configure(..., include_object=include_object)

    :param object: as given by Alembic, like the others
    """
    table = getattr(object, "table", object) if type_ != "table" else object
    owner = name if type_ == "table" else getattr(table, "name", None)
    # Tables in the program's metadata are the program's own, whatever their names.
    is_ours = reflected and compare_to is None and str(owner or "").startswith(_OURS)
    return not is_ours
