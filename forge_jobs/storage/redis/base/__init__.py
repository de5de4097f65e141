"""The ground floor of the Redis store: keys, scripts, steps, wake-ups."""
