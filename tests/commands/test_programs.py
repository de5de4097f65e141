"""The rules on what a job may ask of a program, held before a process starts."""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs import HandlerRegistry, Program, command_handlers
from forge_jobs.commands.programs import (
    MAX_ARGUMENT_BYTES,
    MAX_ARGUMENTS,
    MAX_LOOKS,
    Jail,
    Looks,
)
from forge_jobs.errors import InvalidInput, RegistrationError

ECHO = shutil.which("echo") or "/bin/echo"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file, a folder, and links to the inside and to the outside."""
    root = tmp_path / "root"
    (root / "below").mkdir(parents=True)
    (root / "file").touch()
    (tmp_path / "secret").touch()
    (root / "out").symlink_to(tmp_path)
    (root / "in").symlink_to(root / "below")
    (root / "loop").symlink_to(root / "loop")
    return root


def _asked(folder: Path, *arguments: str, cwd: str = "", program: Program | None = None) -> object:
    jail = Jail(folder)
    chosen = program or Program(ECHO, arguments=[".*"])
    return chosen.command("echo", arguments, jail, jail.folder(cwd))


@pytest.mark.parametrize(
    "argument",
    [
        "../secret",
        "below/../../secret",
        "/etc/passwd",
        "out/secret",
        "--file=/etc/passwd",
        "--file=../secret",
        "-f/etc/passwd",
        "-f../secret",
        "-fout/secret",
        "-xyz/etc/passwd",
        "-xyz../secret",
        "@/etc/passwd",
        "data=@../secret",
        "file:///etc/passwd",
        "png:../secret",
        "a=file,b=/etc/passwd",
        "a|/etc/passwd",
        "a;/etc/passwd",
        "a b /etc/passwd",
        "a\t/etc/passwd",
        "a\n../secret",
        "+/etc/passwd",
        "mvg<../secret",
        "a>out/secret",
        "..",
    ],
)
def test_an_argument_that_names_a_path_outside_is_refused(folder: Path, argument: str) -> None:
    with pytest.raises(InvalidInput, match=r"argv\[1\]: is .* names a path outside of the folder"):
        _asked(folder, argument)


@pytest.mark.parametrize(
    "argument",
    [
        "",
        "file",
        "./file",
        "below/../file",
        "in/new",
        "new",
        "-v",
        "--size=20x20",
        "50%",
        "a;b|c",
        "a long text; of <words> + signs | file",
        "x" * 5_000,
    ],
)
def test_an_argument_that_stays_inside_is_taken_as_it_is(folder: Path, argument: str) -> None:
    assert _asked(folder, argument) == [ECHO, argument]


@pytest.mark.parametrize(
    "pattern", ["=", " ", "/", "./", "../below/", "a/", "a/ ", "below/../ ", "in/../ ", "to/ "]
)
def test_the_work_of_a_check_is_bounded(
    folder: Path, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "deep").mkdir()
    (folder / "to").symlink_to("deep/../" * 500 + "deep")
    jail, asked, read = Jail(folder), 0, os.readlink

    def counted(path: str) -> str:
        nonlocal asked
        asked += 1
        assert asked <= MAX_LOOKS
        return read(path)

    monkeypatch.setattr(os, "readlink", counted)
    program = Program(ECHO, arguments=["(?s:.*)"])
    arguments = [(pattern * MAX_ARGUMENT_BYTES)[:MAX_ARGUMENT_BYTES]] * 100
    with pytest.raises(InvalidInput, match=r"argv\[\d+\]: (is one too many|.* outside)"):
        program.command("echo", arguments, jail, jail.folder(""))
    assert asked <= MAX_LOOKS


def test_a_thousand_names_of_files_are_taken(folder: Path) -> None:
    arguments = [f"--picture=2026/below/picture-{number}.jpg" for number in range(MAX_ARGUMENTS)]
    plain = [each.removeprefix("--picture=") for each in arguments]
    assert _asked(folder, *plain) == [ECHO, *plain]


@given(
    names=st.lists(
        st.sampled_from(["..", ".", "", "file", "below", "out", "in", "new", "root", "up"]),
        max_size=8,
    ),
    is_absolute=st.booleans(),
)
def test_paths_are_resolved_as_the_system_does(names: list[str], is_absolute: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        base = Path(place).resolve()
        root = base / "root"
        (root / "below").mkdir(parents=True)
        (root / "file").touch()
        (root / "out").symlink_to(base)
        (root / "in").symlink_to("below")
        (root / "below" / "up").symlink_to("../file")
        argument = "/".join([*([str(root)] if is_absolute else []), *names])
        found = Path(os.path.realpath(root / argument))
        looks = Looks(Jail(root), root)
        if found == root or root in found.parents:
            looks.check_argument("argv[1]", argument)
        else:
            with pytest.raises(InvalidInput, match="outside"):
                looks.check_argument("argv[1]", argument)


def test_paths_begin_in_the_folder_of_the_command(folder: Path) -> None:
    assert _asked(folder, "../file", cwd="below") == [ECHO, "../file"]
    with pytest.raises(InvalidInput):
        _asked(folder, "../../secret", cwd="below")


def test_a_program_may_be_allowed_paths_anywhere(folder: Path) -> None:
    anywhere = Program(ECHO, arguments=[".*"], anywhere=True)
    assert _asked(folder, "/etc/passwd", program=anywhere) == [ECHO, "/etc/passwd"]


@pytest.mark.parametrize("cwd", ["..", "out", "/", "below/../..", "loop", "\0", "x" * 5_000])
def test_a_working_folder_outside_is_refused(folder: Path, cwd: str) -> None:
    with pytest.raises(InvalidInput, match="cwd"):
        Jail(folder).folder(cwd)


def test_a_working_folder_has_to_exist(folder: Path) -> None:
    for cwd in ("missing", "file"):
        with pytest.raises(InvalidInput, match="there is no such folder"):
            Jail(folder).folder(cwd)
    assert Jail(folder).folder("in") == folder / "below"


def test_arguments_have_to_match_a_pattern_in_full(folder: Path) -> None:
    sizes = Program(ECHO, arguments=[r"-resize", r"\d+x\d+"], before=["-strip"])
    wanted = [ECHO, "-strip", "-resize", "20x20"]
    assert _asked(folder, "-resize", "20x20", program=sizes) == wanted
    for wrong in ("20x20 ", "20x20\n", "x20x20", "-resize=1x1", "$(id)"):
        with pytest.raises(InvalidInput, match=r"argv\[2\]: is .*, which 'echo' does not take"):
            _asked(folder, "-resize", wrong, program=sizes)


def test_a_program_without_patterns_takes_no_arguments(folder: Path) -> None:
    assert _asked(folder, program=Program(ECHO)) == [ECHO]
    with pytest.raises(InvalidInput, match="does not take"):
        _asked(folder, "--help", program=Program(ECHO))


@pytest.mark.parametrize("arguments", [["a\0b"], ["x" * 70_000], ["x"] * 1_001])
def test_what_no_process_can_be_given_is_refused(folder: Path, arguments: list[str]) -> None:
    with pytest.raises(InvalidInput, match="argv"):
        _asked(folder, *arguments)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("bin/echo", "give an absolute path"),
        ("/no/such/program", "there is no such file, or this user"),
        ("no-such-program", "give an absolute path"),
        ("/etc/passwd", "there is no such file, or this user"),
        ("/", "there is no such file, or this user"),
    ],
)
def test_a_program_has_to_be_there_at_registration(path: str, words: str) -> None:
    with pytest.raises(RegistrationError, match=words):
        Program(path)


def test_a_bare_name_is_looked_up_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = Program("echo")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program.path == ECHO


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"arguments": ["("]}, "no regular expression"),
        ({"arguments": ".*"}, "give a list of texts"),
        ({"before": [7]}, "before holds an int"),
        ({"environ": {"A=B": "c"}}, "give names without ="),
        ({"environ": {"A": "c\0"}}, "NUL"),
        ({"max_memory": 0}, "at least 1"),
    ],
)
def test_wrong_options_are_refused_at_registration(options: dict[str, Any], words: str) -> None:
    with pytest.raises(RegistrationError, match=words):
        Program(ECHO, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"folder": "relative"}, "no existing folder with an absolute path"),
        ({"folder": "/no/such/folder"}, "no existing folder"),
        ({"programs": {}}, "programs is empty"),
        ({"programs": {"echo": "echo"}}, r"programs\['echo'\] is a str; give a Program"),
        ({"timeout": 0}, "timeout"),
        ({"max_output": 10**6}, "max_output is 1000000"),
        ({"folder": str(Path(ECHO).parent)}, "where jobs could overwrite the program"),
    ],
)
def test_a_wrong_allow_list_is_refused(folder: Path, options: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"programs": {"echo": Program(ECHO)}, "folder": folder, "timeout": 60}
    given |= options
    with pytest.raises(RegistrationError, match=words):
        command_handlers(given.pop("programs"), **given)


def test_another_allow_list_under_the_same_kind_is_a_conflict(folder: Path) -> None:
    def include(handlers: HandlerRegistry, *arguments: str) -> None:
        program = Program(sys.executable, arguments=arguments)
        handlers.include(command_handlers({"py": program}, folder=folder, timeout=60))

    handlers = HandlerRegistry()
    include(handlers, "-V")
    include(handlers, "-V")
    with pytest.raises(RegistrationError, match="kind 'cmd_exec' belongs to"):
        include(handlers, "-VV")
    assert len(handlers) == 1


def test_no_registry_has_built_in_handlers_unasked() -> None:
    assert not HandlerRegistry().kinds()
