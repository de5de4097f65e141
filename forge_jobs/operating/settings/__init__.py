"""Queues, schedules and rate limits, as operators set them."""
