"""For programs whose own schema is migrated by Alembic, in the database that holds ours too.

``forge-jobs migrate`` makes our tables, so Alembic must leave them alone: without a word to the
contrary its autogenerate proposes to drop whatever is not in the program's own metadata.
"""

from typing import Any

_OURS = "forge_"


def include_object(
    object: Any, name: str | None, type_: str, reflected: bool, compare_to: Any
) -> bool:
    """Whether Alembic is to look at an object of the database: not when it is one of our tables.

    Give it to ``context.configure`` in ``env.py``, or call it from a hook of your own::

        from forge_jobs.alembic import include_object

        context.configure(..., include_object=include_object)

    :param object: as Alembic gives it, like the others
    """
    table = getattr(object, "table", object) if type_ != "table" else object
    owner = name if type_ == "table" else getattr(table, "name", None)
    # Tables that the program has in its metadata are its own, whatever they are called.
    is_ours = reflected and compare_to is None and str(owner or "").startswith(_OURS)
    return not is_ours
