"""Pods, workers and slots in a SQL store."""
