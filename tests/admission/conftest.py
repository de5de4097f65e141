"""The stores of the conformance suite, whose time stands still until a test moves it."""

from tests.conformance.conftest import clock, storage

__all__ = ["clock", "storage"]
