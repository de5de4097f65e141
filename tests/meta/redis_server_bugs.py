"""Bugs in how the Redis backend finds servers, and in their messages."""

from tests.meta.bugs import Bug, Edit

_REDIS = "forge_jobs/storage/redis/"


def _bug(name: str, test: str, file: str, old: str, new: str) -> Bug:
    tests = (f"tests/backends/redis/test_{test}.py",)
    return Bug(f"redis: {name}", tests, (Edit(f"{_REDIS}{file}", old, new),), "redis")


def _of_listener(name: str, old: str, new: str) -> Bug:
    tests = ("tests/backends/redis/test_wake.py",)
    return Bug(
        f"redis: {name}", tests, (Edit("forge_jobs/storage/listening.py", old, new),), "redis"
    )


REDIS_SERVER_BUGS: tuple[Bug, ...] = (
    _bug(
        "wake-ups of queues go to every server",
        "sharded_wake",
        "base/rights.py",
        "    if database.is_cluster and len(missing) == len(lacking):\n",
        "    if database.is_cluster and lacking == ['x']:\n",
    ),
    _bug(
        "sharded messages are not subscribed to",
        "sharded_wake",
        "base/listening.py",
        '            if self._url.kind == "cluster":\n',
        '            if self._url.kind == "none":\n',
    ),
    _bug(
        "a subscription that a server takes back is forgotten",
        "sharded_wake",
        "driver/sharded.py",
        '        elif kind == b"sunsubscribe":\n',
        '        elif kind == b"sunsubscribed":\n',
    ),
    _bug(
        "a server that was lost is not subscribed to again",
        "sharded_wake",
        "driver/sharded.py",
        "            ended = self._at.pop(host)\n",
        "            ended = self._at[host]\n",
    ),
    _bug(
        "a call tells its caller a turn of the event loop later",
        "loop_turns",
        "base/database.py",
        "        return await answer\n",
        "        return await asyncio.shield(answer)\n",
    ),
    _bug(
        "a queue is published to after its last waiter has died",
        "wake",
        "lua/lib/base/wakes.lua",
        "  return waits and whole(waits, 0) > wall_time()\n",
        "  return waits and true\n",
    ),
    _bug(
        "hosts asked one after another",
        "silent_hosts",
        "driver/hosts.py",
        "timeout=None if host is None else _STAGGER_S",
        "timeout=None",
    ),
    _bug(
        "a silent host keeps its place",
        "silent_hosts",
        "driver/hosts.py",
        "                    self.put_last(host)\n",
        "                    pass\n",
    ),
    _bug(
        "nobody asks whether a silent server was replaced",
        "silent_hosts",
        "driver/silence.py",
        "if self._silent() and",
        "if not self._begun and",
    ),
    _bug(
        "redirects without an end",
        "silent_hosts",
        "driver/cluster.py",
        "if moves > _MOST_MOVES",
        "if moves < 0",
    ),
    _bug(
        "an idle connection that was reset is used",
        "connections",
        "driver/connections.py",
        "writer is None or writer.transport.is_closing()",
        "writer is None",
    ),
    _bug(
        "uvloop's error for a reset let out",
        "connections",
        "driver/connections.py",
        "_reset_while_writing(error) from error\n    return",
        "\n    return",
    ),
    _bug(
        "a claim that comes up short notes nothing",
        "wake",
        "lua/jobs/claim/exchange.lua",
        "    note_waiting(base)\n",
        "",
    ),
    _bug(
        "published though nobody waits",
        "wake",
        "lua/lib/base/wakes.lua",
        "return waits and whole(waits, 0) > wall_time()",
        "return true",
    ),
    _bug(
        "who waits and claims nothing is not noted",
        "wake",
        "base/waiting.py",
        "if queue not in self._noted or",
        "if queue in self._noted and",
    ),
    _bug(
        "a channel for all databases",
        "wake",
        "keys.py",
        'f"{prefix}:wake:{database}"',
        'f"{prefix}:wake:0"',
    ),
    _of_listener(
        "the last bundle that closes leaves the listener running",
        "        self._thread.over()\n        self._thread.call_soon(self._cancel)\n",
        "        return\n",
    ),
    _of_listener(
        "waiters sleep on when wake-ups arrive again",
        "        self.works = True\n        # Something may have been published before.\n"
        "        self.wakeups.wake([EVERYTHING])\n",
        "        self.works = True\n",
    ),
    _of_listener(
        "an outage of the listener is logged with each try",
        "        if self._outage.is_new():\n",
        "        if True:\n",
    ),
    _of_listener(
        "a listener that fails by a defect is not tried again",
        "                    self.lost(error)\n",
        "                    self.lost(error)\n                    return\n",
    ),
    _bug(
        "a message that is no text ends the listener",
        "wake",
        "base/listening.py",
        'text.decode(errors="replace")',
        "text.decode()",
    ),
    _bug(
        "claims of one time compared as the server's locale does",
        "locales",
        "lua/lib/jobs/claim/merging.lua",
        "return is_before(one.id, other.id)",
        "return one.id < other.id",
    ),
    _bug(
        "ids compared as the server's locale does",
        "locales",
        "lua/lib/base/start.lua",
        "if FOLLOWS_BYTES then",
        "if one then",
    ),
    _bug(
        "every write waits for missing replicas",
        "durability",
        "driver/replicas.py",
        "return 0, 1",
        "pass",
    ),
    _bug(
        "replicas that one server misses are missed by all",
        "durability",
        "driver/connections.py",
        "each.host = (connection.host, connection.port)",
        'each.host = ("", 0)',
    ),
    _bug(
        "a write that only asked says that replicas are missing",
        "durability",
        "driver/replicas.py",
        "if not has_waited and not server.short:",
        "if False:",
    ),
    _bug(
        "a replaced primary that wakes up is believed",
        "silent_hosts",
        "driver/connections.py",
        "            if has_left:\n",
        "            if False:\n",
    ),
    _bug(
        "an eviction policy looked for in INFO alone",
        "durability",
        "driver/durability.py",
        ' or self.settings.get("maxmemory-policy", "")',
        ' or ""',
    ),
)
