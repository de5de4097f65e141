"""The statements that run for every job, as SQL: SQLite's first, then the twin on Postgres."""
