"""The leader lease and schedules in a Redis store."""
