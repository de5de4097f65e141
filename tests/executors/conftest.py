"""Stores for pods with processes of their own."""

from tests.runtime.conftest import storage

__all__ = ["storage"]
