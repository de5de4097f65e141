"""The command line: reads and acts through the storage protocols and the runtime's functions.

Data goes to stdout, talk to stderr. Exit codes: 0 fine, 1 the operation failed or was refused,
2 bad usage or bad input.
"""
