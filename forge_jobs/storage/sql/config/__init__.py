"""Settings of queues and rate limits in a SQL store."""
