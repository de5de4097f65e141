"""The reader that fills a ``Snapshot`` from a store, and the problems seen in that."""
