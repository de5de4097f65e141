"""The rooms of the house: the same in every store, none too full to be seen at a glance."""

from pathlib import Path

import pytest

import forge_jobs

_PACKAGE = Path(forge_jobs.__file__).parent
_SQL, _REDIS = _PACKAGE / "storage" / "sql", _PACKAGE / "storage" / "redis"
_FULL = 15
"""Modules of a folder, at most, without the folders there."""

_SQL_ALONE = {
    "jobs": {
        "matching": "terms are conditions of SQL, and on Redis a part of the scripts",
        "deliveries": "a child's end needs what all ends have in common, which needs its edges",
        "endings": "the functions that all statements of an end share; in Lua they are parts",
        "finalize": "Redis ends claims and makes new ones in one script, see claim",
        "sequences": "a part of the scripts that store jobs and hand ends over on Redis",
        "unknown_kinds": "Redis keeps each kind's ready jobs apart and has nothing to put aside",
    },
    "config": {"tables": "what lies where on Redis is in keys"},
    "fleet": {
        "due_kinds": "one script on Redis, in allocations",
        "noted_beats": "only SQL has transactions of callers that lock jobs",
        "read": "Redis answers pods as they are stored, see pods",
    },
    "letters": {
        "write": "one part of the scripts that end claims on Redis",
        "outbox": "jobs of a caller's transaction, which Redis does not have",
    },
    "progress": {"tables": "what lies where on Redis is in keys"},
}
_REDIS_ALONE = {
    "jobs": {
        "sweep": "SQL keeps a job and what leads to it in one transaction; nothing gets apart",
    },
}


def _modules(folder: Path) -> set[str]:
    """Return the modules and folders in a folder."""
    found = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    return found | {path.parent.name for path in folder.glob("*/__init__.py")}


@pytest.mark.parametrize(
    "room", ["actions", "jobs", "fleet", "config", "cron", "history", "letters", "progress"]
)
def test_the_rooms_of_a_protocol_have_the_same_names_in_every_store(room: str) -> None:
    sql, redis = _modules(_SQL / room), _modules(_REDIS / room)
    assert sql - redis == {*_SQL_ALONE.get(room, ())}
    assert redis - sql == {*_REDIS_ALONE.get(room, ())}


def _folders() -> list[Path]:
    packages = [path.parent for path in _PACKAGE.rglob("__init__.py")]
    return packages + [path for path in (_REDIS / "lua").rglob("*") if path.is_dir()]


def _size(folder: Path) -> int:
    """Return how many modules the folder has."""
    modules = [*folder.glob("*.py"), *folder.glob("*.lua")]
    return len([path for path in modules if path.stem != "__init__"])


def test_no_folder_is_too_full() -> None:
    sizes = {str(folder.relative_to(_PACKAGE)): _size(folder) for folder in _folders()}
    assert {folder: size for folder, size in sizes.items() if size > _FULL} == {}
