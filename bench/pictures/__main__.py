"""Draw every file of ``bench/results`` into ``docs/pictures``: ``python -m bench.pictures``.

matplotlib lives in a separate environment, so that no developer installs 100 MB for a picture.
"""

import subprocess
from pathlib import Path

from bench.children import ROOT
from bench.peers.environments import installed

REQUIREMENTS = ("matplotlib==3.11.2",)


def draw(results: Path, pictures: Path) -> None:
    """Make a picture per workload group of each file in ``results``."""
    script = Path(__file__).with_name("drawing.py")
    subprocess.run([installed(REQUIREMENTS), script, results, pictures], check=True)


if __name__ == "__main__":
    draw(ROOT / "bench" / "results", ROOT / "docs" / "pictures")
