"""Light and dark differ in colours alone, so the browser opens each page in dark at one width."""

import re
from importlib.resources import files

COLOUR = r"#[0-9a-f]{3,8}"
PAIR = re.compile(rf"light-dark\({COLOUR}, {COLOUR}\)")
BY_SCHEME = re.compile(r"data-scheme[^{]*\{([^}]*)\}")


def test_a_scheme_changes_colours_and_nothing_else() -> None:
    folder = files("forge_jobs.web") / "static"
    sheets = [each.read_text() for each in folder.iterdir() if each.name.endswith(".css")]
    text = "\n".join(sheets)
    assert "prefers-color-scheme" not in text
    assert text.count("light-dark(") == len(PAIR.findall(text)) > 0
    rules = [rule.strip() for rule in BY_SCHEME.findall(text)]
    assert rules == ["color-scheme: light;", "color-scheme: dark;"]
