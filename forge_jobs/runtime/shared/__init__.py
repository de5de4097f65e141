"""Modules that several parts of the runtime use."""
