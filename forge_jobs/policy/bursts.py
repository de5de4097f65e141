"""How long something that is asked for again and again has to wait."""


class Bursts:
    """Lets a few through at once, and in the long run one per ``every``.

    Implements the generic cell rate algorithm in virtual scheduling form (ITU-T I.371, annex A).

    :param every: seconds between two, once ``at_once`` have come without a pause
    :param at_once: how many after a long pause do not wait
    """

    def __init__(self, every: float, at_once: int) -> None:
        self._every = every
        self._ahead = at_once * every
        self._paid_until = float("-inf")

    def delay(self, now: float) -> float:
        """Admit one more, and answer the seconds to wait.

        :param now: on any clock that never goes back
        """
        self._paid_until = max(self._paid_until, now) + self._every
        return max(0.0, self._paid_until - self._ahead - now)
