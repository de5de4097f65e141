"""Documents of kinds."""

from datetime import datetime

from msgspec import Struct

from forge_jobs.handlers.schema import KindEntry


class KindView(KindEntry, frozen=True, kw_only=True):
    """A kind as the pods describe the kind.

    :param pods: how many live pods know the kind
    :param published_at: when a pod with the kind last joined
    """

    pods: int
    published_at: datetime


class Kinds(Struct, frozen=True):
    """All kinds that pods have described, by name."""

    kinds: tuple[KindView, ...]
