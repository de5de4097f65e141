"""Problems: what is wrong with an installation, since when, why, and what is safe to do.

``snapshot`` is what the rules look at, ``queues``, ``jobs``, ``limits``, ``fleet``, ``outboxes``
and ``store`` are the rules. ``judging`` is the table of the rules, and the list that all surfaces
show.
"""
