"""Migrations as files: ``NNNN_name.<flavor>.sql`` beside this module.

Statements end with a semicolon at the end of a line outside of ``$$``. Comments at the very top may
hold settings, each on a line of its own:

``-- works-from: N``
    Programs whose own last migration is ``N`` or later work with the schema after this migration.
    Without this setting only programs that know this migration do.

On Postgres ``CREATE INDEX CONCURRENTLY`` runs outside of transactions, and ``COMMIT`` ends the
transaction of the statements before. A migration that was killed begins again at the top: all
statements before the last index or ``COMMIT`` must bear a second run (``IF NOT EXISTS``). In an
empty database everything is one transaction.

``NNNN_name.<flavor>.down.sql`` undoes a migration. A migration without this file cannot be undone
without losing data. ``-- loses: QUERY`` at the top of the file finds data that undoing would lose:
each row is one text, for people.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_SETTING = re.compile(r"-- ([a-z-]+): (.+)")
_CONCURRENT = re.compile(
    r"CREATE (?P<unique>UNIQUE )?INDEX CONCURRENTLY (?P<name>\w+) ON (?P<table>\w+) (?P<rest>.*)",
    re.DOTALL,
)


@dataclass(frozen=True)
class ConcurrentIndex:
    """An index that is built while other transactions write to the table."""

    name: str
    table: str
    unique: str
    rest: str

    def statement(self, place: str = "", how: str = "CONCURRENTLY ") -> str:
        """Return the statement that builds the index.

        :param place: the schema of the table, with a dot
        :param how: "": within a transaction, where the table is not in use yet
        """
        return f"CREATE {self.unique}INDEX {how}{self.name} ON {place}{self.table} {self.rest}"


@dataclass(frozen=True)
class Migration:
    """A schema change.

    :param down: the text that undoes the change, None when nothing can
    """

    version: int
    name: str
    text: str
    down: str | None = None

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def works_from(self) -> int:
        """The oldest schema version whose programs work with the schema after this migration."""
        return int(_settings(self.text).get("works-from", self.version))

    @property
    def loses(self) -> str | None:
        """The query that finds data which undoing the migration would lose."""
        return _settings(self.down or "").get("loses")

    @property
    def statements(self) -> list[str]:
        """The whole migration, for one transaction in an empty database."""
        return [
            each.statement(how="") if isinstance(each, ConcurrentIndex) else each
            for piece in self.pieces
            for each in ([piece] if isinstance(piece, ConcurrentIndex) else piece)
        ]

    @property
    def pieces(self) -> list[ConcurrentIndex | list[str]]:
        """Indexes that are built by themselves, and between them transactions.

        The last piece is a transaction, empty perhaps.
        """
        pieces: list[ConcurrentIndex | list[str]] = []
        transaction: list[str] = []
        for statement in statements_of(self.text):
            found = _CONCURRENT.search(statement)
            ends = statement.splitlines()[-1] == "COMMIT"
            if found or ends:
                pieces += [transaction] if transaction else []
                transaction = []
            if found:
                pieces.append(
                    ConcurrentIndex(
                        found["name"], found["table"], found["unique"] or "", found["rest"]
                    )
                )
            elif not ends:
                transaction.append(statement)
        return [*pieces, transaction]


def statements_of(text: str) -> list[str]:
    """Return the statements, without the semicolons that end them and without mere comments."""
    found = [""]
    for part in text.split(";\n"):
        if found[-1].count("$$") % 2:
            found[-1] += f";\n{part}"
        else:
            found.append(part)
    return [part.strip() for part in found if not _is_comment(part)]


def _is_comment(part: str) -> bool:
    return all(not line or line.startswith("--") for line in part.splitlines())


def _settings(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        if setting := _SETTING.fullmatch(line):
            found[setting[1]] = setting[2]
    return found


@cache
def known_migrations(flavor: str) -> tuple[Migration, ...]:
    """Return every migration of this program for one database, in order."""
    suffix = f".{flavor}.sql"
    texts = {
        file.name: file.read_text("utf-8")
        for file in files(__package__).iterdir()
        if file.name.endswith(".sql")
    }
    found = []
    for file_name, text in texts.items():
        if file_name.endswith(suffix):
            stem = file_name.removesuffix(suffix)
            version, _, name = stem.partition("_")
            found.append(
                Migration(int(version), name, text, texts.get(f"{stem}.{flavor}.down.sql"))
            )
    return tuple(sorted(found, key=lambda migration: migration.version))
