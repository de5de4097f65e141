"""Fetches the files of others that are kept here: ``python -m tests.browser.assets``.

``vendor.json`` lists them: package, version, file, licence, and SHA-256 of what is kept. A package
whose file has another hash is refused, unless ``--update`` writes the new hash down.
"""

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import msgspec
from msgspec import Struct

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).parent / "vendor.json"


class Kept(Struct, kw_only=True):
    """A file of a package.

    :param file: within the package. ``licence`` likewise
    :param target: where the file is kept, below the root of the repository
    """

    package: str
    version: str
    file: str
    licence: str
    target: str
    sha256: str


def kept() -> list[Kept]:
    """Return the list."""
    return msgspec.json.decode(LIST.read_bytes(), type=list[Kept])


def digest(content: bytes) -> str:
    """Return the SHA-256."""
    return hashlib.sha256(content).hexdigest()


def fetch(each: Kept, folder: Path) -> tuple[bytes, bytes]:
    """Return the file and the licence, from what ``npm pack`` gives."""
    command = ["npm", "pack", "--silent", f"{each.package}@{each.version}"]
    packed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
        found = []
        for name in (each.file, each.licence):
            member = archive.extractfile(f"package/{name}")
            assert member is not None, f"{each.package} has no {name}"
            found.append(member.read())
    return found[0], found[1]


def main() -> int:
    """Fetch all files. Return the exit code."""
    files = kept()
    for each in files:
        with tempfile.TemporaryDirectory() as folder:
            content, licence = fetch(each, Path(folder))
        if digest(content) != each.sha256:
            if "--update" not in sys.argv:
                print(f"{each.package} {each.version}: another file; look, then --update")
                return 1
            each.sha256 = digest(content)
        target = ROOT / each.target
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(content)
        target.with_name(f"{target.name.partition('.')[0]}.LICENSE").write_bytes(licence)
    LIST.write_bytes(msgspec.json.format(msgspec.json.encode(files), indent=2) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
