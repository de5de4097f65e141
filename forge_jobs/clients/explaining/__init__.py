"""Readings for explanations of jobs that wait for others: a key of a limit, the job in front."""
