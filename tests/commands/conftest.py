"""Stores for pods that run commands."""

from tests.runtime.conftest import storage

__all__ = ["storage"]
