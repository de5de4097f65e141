"""What the log and the health of a pod say of a store that does not do what it is asked."""

from forge_jobs.errors import StorageRefused


def deed_of(error: Exception) -> str:
    """What the store does."""
    return "the store refuses" if isinstance(error, StorageRefused) else "the store does not answer"


def trouble_of(error: Exception, of: str = "") -> str:
    """The same for health, which names what somebody has to mend.

    :param of: whose call it was
    """
    words = f"{deed_of(error)} {of}".rstrip()
    return f"{words}: {error}" if isinstance(error, StorageRefused) else words
