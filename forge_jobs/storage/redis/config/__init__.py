"""Settings of queues and rate limits in a Redis store."""
