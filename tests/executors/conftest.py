"""Stores for pods with processes of their own."""

from tests.commands.conftest import storage

__all__ = ["storage"]
