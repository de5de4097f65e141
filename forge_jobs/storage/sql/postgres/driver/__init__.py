"""Connections to Postgres: hosts, sessions, and what their errors mean."""
