"""Pods, workers and slots in a Redis store."""
