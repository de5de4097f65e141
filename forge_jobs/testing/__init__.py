"""Aids for tests, demos and experiments: servers that start by themselves."""
