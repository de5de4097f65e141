"""How the job lists of an SQL store are ordered and counted."""
