"""Requests of operators to pods."""
