"""Hot calls, each in one statement of Postgres."""
