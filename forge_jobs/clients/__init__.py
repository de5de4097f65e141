"""Clients of a store: jobs in, results out, for programs with an event loop and without one."""
