"""The outbox: jobs of a transaction in one database, for queues on another store."""
