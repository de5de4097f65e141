"""Counts of a pod, buffered until the store has taken the counts."""
