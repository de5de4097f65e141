"""The contract of ``forge_jobs.storage.protocols``, executable.

The tests know the protocols and nothing else. A backend that needs an exception here is
wrong, or the protocol is.
"""
