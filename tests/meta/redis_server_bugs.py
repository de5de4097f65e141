"""Bugs in how the Redis backend finds servers, and in what it hears of them."""

from tests.meta.bugs import Bug, Edit

_REDIS = "forge_jobs/storage/redis/"


def _bug(name: str, test: str, file: str, old: str, new: str) -> Bug:
    tests = (f"tests/backends/redis/test_{test}.py",)
    return Bug(f"redis: {name}", tests, (Edit(f"{_REDIS}{file}", old, new),), "redis")


REDIS_SERVER_BUGS: tuple[Bug, ...] = (
    _bug(
        "hosts asked one after another",
        "silent_hosts",
        "asking.py",
        "timeout=None if host is None else _STAGGER_S",
        "timeout=None",
    ),
    _bug(
        "a silent host keeps its place",
        "silent_hosts",
        "asking.py",
        "                    self.put_last(host)\n",
        "                    pass\n",
    ),
    _bug(
        "nobody asks whether a silent server was replaced",
        "silent_hosts",
        "silence.py",
        "if self._silent() and",
        "if not self._begun and",
    ),
    _bug(
        "redirects without an end",
        "silent_hosts",
        "cluster.py",
        "if moves > _MOST_MOVES",
        "if moves < 0",
    ),
    _bug(
        "an idle connection that was reset is used",
        "connections",
        "connections.py",
        "writer is None or writer.transport.is_closing()",
        "writer is None",
    ),
    _bug(
        "uvloop's error for a reset let out",
        "connections",
        "connections.py",
        "_reset_while_writing(error) from error\n    return",
        "\n    return",
    ),
)
