"""The list of peers, and our targets against them."""

from collections.abc import Mapping

from bench.peers.arq import Arq
from bench.peers.chancy import Chancy
from bench.peers.docket import Docket
from bench.peers.dramatiq import Dramatiq
from bench.peers.huey import Huey, HueyUnsafe
from bench.peers.oban import Oban
from bench.peers.pgqueuer import PgQueuer, PgQueuerCapped
from bench.peers.procrastinate import Procrastinate
from bench.peers.saq import SaqPostgres, SaqRedis
from bench.peers.streaq import Streaq
from bench.peers.taskiq import Taskiq
from bench.side import Side

PEERS: Mapping[str, tuple[type[Side], ...]] = {
    "postgres": (PgQueuer, PgQueuerCapped, Oban, Chancy, Procrastinate, SaqPostgres),
    "redis": (Taskiq, SaqRedis, Streaq, Arq, Docket, Dramatiq),
    "sqlite": (Huey, HueyUnsafe),
}

BEST = "best"
"""The fastest peer that acknowledges after the run."""

TARGETS: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "postgres": {
        "drain-10": {BEST: 3.0},
        "drain-100": {BEST: 1.2},
        "drain-2x100": {BEST: 1.1},
        "enqueue-one": {BEST: 1.0},
        "enqueue-callers": {BEST: 5.0},
        "enqueue-bulk": {BEST: 1.1},
    },
    "redis": {
        "drain-10": {BEST: 4.0},
        "drain-100": {BEST: 5.0},
        "drain-2x100": {BEST: 4.0},
        "enqueue-one": {BEST: 1.0},
        "enqueue-callers": {BEST: 3.0},
        "enqueue-bulk": {BEST: 2.0},
    },
    "sqlite": {
        "drain-10": {"huey": 4.0, "huey-unsafe": 1.5},
        "drain-100": {"huey": 4.0},
        "enqueue-one": {"huey": 1.0},
        "enqueue-callers": {"huey": 5.0},
        "enqueue-bulk": {"huey": 2.0},
    },
}
"""How many times the peer's rate ours must be, by store, workload and peer."""
