"""The leader lease and schedules in a SQL store."""
