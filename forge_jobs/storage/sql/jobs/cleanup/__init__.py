"""Retention in a SQL store."""
