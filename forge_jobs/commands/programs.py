"""Programs that jobs may run, and what a job may ask of each. Checked before a process starts."""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from forge_jobs.errors import InvalidInput, RegistrationError, a_type
from forge_jobs.model.names import check_name

MAX_ARGUMENTS, MAX_ARGUMENT_BYTES = 1_000, 64 * 1024
MAX_LOOKS = 20_000
"""Names in a folder that are looked up for the arguments of one command: a tenth of a second."""

_LONGEST_PATH = 4_096
"""Characters. No longer path can be opened, so what follows in an argument is no part of one."""

_MOST_LINKS = 40
"""Symbolic links in one path, as for the system."""

_MINIMAL = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"}
_PIECES = re.compile(r"[=:,@|;<>+\s]")


class Program:
    """A program that ``command_handlers`` may run.

    :param path: an absolute path. A bare name is looked up in ``PATH`` once, here
    :param arguments: regular expressions. Each argument of a job has to match one of them in full.
        Without any, jobs give no arguments
    :param before: arguments that come first, which no job can change
    :param anywhere: arguments may name paths outside the folder. Otherwise an argument is refused
        when a part of the argument, read as a path, leaves the folder: ``../x``, ``/etc/passwd``,
        ``--out=/tmp/x``, ``@/etc/passwd``, a symbolic link to the outside
    :param environ: variables beside the minimal environment, of which these win: ``PATH``, ``LANG``
        and ``HOME=/nonexistent``. Nothing of the worker's environment is passed on
    :param success: exit codes that end the job well
    :param retried: exit codes after which the job is retried, after all others the job is dead.
        None: retried after all of them. A program that a signal killed is retried in any case
    :param max_memory: in bytes, of all processes of the program together. Above that they are
        killed, and the attempt fails
    :raises RegistrationError: there is no such program, or an option is wrong
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        arguments: Iterable[str] = (),
        before: Iterable[str] = (),
        anywhere: bool = False,
        environ: Mapping[str, str] | None = None,
        success: Iterable[int] = (0,),
        retried: Iterable[int] | None = None,
        max_memory: int | None = None,
    ) -> None:
        self.path = resolved(path)
        self.patterns = tuple(self._pattern(each) for each in _listed("arguments", arguments))
        self.before = tuple(check_text("before", each) for each in _listed("before", before))
        self.anywhere = anywhere
        self.environ = environment(environ)
        self.success = frozenset(success)
        self.retried = None if retried is None else frozenset(retried)
        if max_memory is not None and (type(max_memory) is not int or max_memory < 1):
            raise RegistrationError(f"max_memory is {max_memory!r}; give bytes, at least 1")
        self.max_memory = max_memory

    def __repr__(self) -> str:
        options = [
            self.path,
            *(each.pattern for each in self.patterns),
            *(f"before={each!r}" for each in self.before),
            f"anywhere={self.anywhere}",
            f"success={sorted(self.success)}",
            f"retried={self.retried and sorted(self.retried)}",
            f"max_memory={self.max_memory}",
            *(f"{name}={value!r}" for name, value in sorted(self.environ.items())),
        ]
        return f"Program({', '.join(options)})"

    def _pattern(self, pattern: str) -> "re.Pattern[str]":
        try:
            return re.compile(pattern, re.DOTALL)
        except (re.error, TypeError) as error:
            raise RegistrationError(
                f"arguments of {self.path} hold {pattern!r:.80}, which is no regular expression "
                f"({error}); for a plain text use re.escape(...)"
            ) from None

    def command(self, name: str, arguments: Sequence[str], jail: "Jail", cwd: Path) -> list[str]:
        """Return the arguments of the process, the program first.

        :param cwd: where relative paths begin
        :raises InvalidInput: an argument is not allowed
        """
        if len(arguments) > MAX_ARGUMENTS:
            fix = f"give at most {MAX_ARGUMENTS}, or a file that lists the rest"
            raise InvalidInput("argv", f"has {len(arguments)} arguments", fix)
        looks = Looks(jail, cwd)
        for index, each in enumerate(arguments, 1):
            field = f"argv[{index}]"
            _check_argument(field, each)
            if not any(pattern.fullmatch(each) for pattern in self.patterns):
                fix = "ask who runs the worker: the patterns are in Program(arguments=...)"
                raise InvalidInput(field, f"is {each!r:.200}, which {name!r} does not take", fix)
            if not self.anywhere:
                looks.check_argument(field, each)
        return [self.path, *self.before, *arguments]


class Jail:
    """A folder that the paths of jobs may not leave. A check of names: see the manual.

    :raises RegistrationError: there is no such folder
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        path = Path(folder)
        if not path.is_absolute() or not path.is_dir():
            raise RegistrationError(
                f"folder is {str(path)!r}, which is no existing folder with an absolute path; "
                "commands run there, so make the folder first"
            )
        self.root = path.resolve()

    def __contains__(self, path: Path) -> bool:
        return path == self.root or self.root in path.parents

    def folder(self, cwd: str) -> Path:
        """Return the folder in which a command runs.

        :param cwd: below the root. "": the root
        :raises InvalidInput: the folder is outside, or there is none
        """
        _check_argument("cwd", cwd)
        fix = "give a path relative to the folder of the commands, without .."
        found = self._resolved(self.root / cwd)
        if found is None or found not in self:
            raise InvalidInput("cwd", f"is {cwd!r:.200}, which leaves the folder", fix)
        if not os.path.isdir(found):  # unlike the method of Path, never raises
            raise InvalidInput("cwd", f"is {cwd!r:.200}, and there is no such folder", fix)
        return found

    @staticmethod
    def _resolved(path: Path) -> Path | None:
        try:
            return path.resolve()
        except (OSError, RuntimeError, ValueError):  # a loop of links, a name that is too long
            return None


class Looks:
    """Looks whether the arguments of one command stay in the jail. The work is bounded.

    :param cwd: where relative paths begin, without symbolic links
    :ivar count: of the names that were looked up
    """

    def __init__(self, jail: Jail, cwd: Path) -> None:
        self.count = 0
        self._root = str(jail.root)
        self._cwd = str(cwd)

    def check_argument(self, field: str, argument: str) -> None:
        """Refuse an argument of which a part, read as a path, leaves the folder.

        :raises InvalidInput: names the argument
        """
        for part in _paths_in(argument):
            found = self._resolved(field, part[:_LONGEST_PATH])
            if found is None or not self._is_inside(found):
                fix = "give a path in the folder of the commands"
                problem = f"is {argument!r:.200}, which names a path outside of the folder"
                raise InvalidInput(field, problem, fix)

    def _is_inside(self, path: str) -> bool:
        return path == self._root or path.startswith(self._root.rstrip("/") + "/")

    def _resolved(self, field: str, part: str) -> str | None:
        """Return the path without symbolic links, as ``os.path.realpath``. None: too many links."""
        path = "/" if part.startswith("/") else self._cwd
        names = part.split("/")[::-1]
        links = 0
        while names:
            self._count(field)
            name = names.pop()
            if name in {"", "."}:
                continue
            if name == "..":
                path = os.path.dirname(path)
                continue
            path = os.path.join(path, name)
            target = _target(path)
            if target is not None:
                links += 1
                if links > _MOST_LINKS:
                    return None
                path = "/" if target.startswith("/") else os.path.dirname(path)
                names += target.split("/")[::-1]
        return path

    def _count(self, field: str) -> None:
        self.count += 1
        if self.count > MAX_LOOKS:
            raise InvalidInput(
                field,
                f"is one too many: the arguments up to here hold more than {MAX_LOOKS:,} names "
                "that may be parts of paths",
                "give fewer, or a file that lists them. Who runs the worker can allow paths "
                "anywhere: Program(anywhere=True)",
            )


def _target(path: str) -> str | None:
    """Return where a symbolic link leads. None: there is no link."""
    try:
        return os.readlink(path)
    except (OSError, ValueError):
        return None


def _paths_in(argument: str) -> Iterator[str]:
    """Return what a program may take for a path: the whole, and the ends behind separators.

    Of each, no more than a path can be long.
    """
    yield argument
    for found in _PIECES.finditer(argument):
        yield argument[found.end() : found.end() + _LONGEST_PATH]
    if argument.startswith("-"):
        yield argument[2:]
        for start in ("/", ".."):
            at = argument.find(start)
            if at > 0:
                yield argument[at:]


def resolved(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a program.

    :raises RegistrationError: there is none, or the path is relative
    """
    name = os.fspath(path)
    found = name if os.path.isabs(name) else None if os.sep in name else shutil.which(name)
    if found is None or not os.path.isabs(found):
        raise RegistrationError(
            f"program {name!r}: give an absolute path, or the name of a program in PATH"
        )
    if not (os.path.isfile(found) and os.access(found, os.X_OK)):
        raise RegistrationError(
            f"program {found!r}: there is no such file, or this user may not execute it; give "
            "another path, or chmod +x"
        )
    return found


def environment(given: Mapping[str, str] | None) -> dict[str, str]:
    """Return the minimal environment with ``given`` on top.

    :raises RegistrationError: what is given is no mapping of texts
    """
    merged = _MINIMAL | dict(given or {})
    for name, value in merged.items():
        if "=" in check_text("environ", name) or not name:
            raise RegistrationError(f"environ has the name {name!r}; give names without =")
        check_text(f"environ[{name!r}]", value)
    return merged


def check_text(field: str, value: object) -> str:
    """``value`` as a text that a process can be given.

    :raises RegistrationError: says what the value is
    """
    if not isinstance(value, str) or "\0" in value:
        what = a_type(value) if not isinstance(value, str) else "a text with a NUL character"
        raise RegistrationError(f"{field} holds {what}; give texts without NUL characters")
    return value


def check_programs(programs: Mapping[str, Program], jail: Jail) -> dict[str, Program]:
    """``programs`` as an allow-list by name.

    :raises RegistrationError: a name or a program is wrong, or jobs could overwrite the program
    """
    if not isinstance(programs, Mapping) or not programs:
        raise RegistrationError('programs is empty; give some, as {"convert": Program("convert")}')
    for name, program in programs.items():
        try:
            check_name("programs", name)
        except InvalidInput as error:
            raise RegistrationError(str(error)) from None
        if not isinstance(program, Program):
            raise RegistrationError(f"programs[{name!r}] is {a_type(program)}; give a Program")
        if Path(program.path).resolve() in jail or Path(program.path) in jail:
            raise RegistrationError(
                f"program {program.path!r} lies in the folder {str(jail.root)!r}, where jobs could "
                "overwrite the program; keep programs elsewhere"
            )
    return dict(programs)


def _check_argument(field: str, value: str) -> None:
    if len(value) > MAX_ARGUMENT_BYTES:
        fix = f"give at most {MAX_ARGUMENT_BYTES} characters, or a file"
        raise InvalidInput(field, f"has {len(value)} characters", fix)
    if "\0" in value:
        raise InvalidInput(field, "contains a NUL character", "remove the character")


def _listed(field: str, values: object) -> list[str]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise RegistrationError(f"{field} is {a_type(values)}; give a list of texts")
    return list(values)
