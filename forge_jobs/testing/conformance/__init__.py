"""The conformance suite of stores, for authors of backends.

``python -m forge_jobs.testing.conformance my_package:open_store`` runs the tests that the stores
of this package pass. The function is an :data:`OpenStore`. pytest is needed, and ``hypothesis`` for
the part ``model``. See ``docs/backends.md``.
"""

from forge_jobs.testing.conformance.backends import OpenStore as OpenStore

__all__ = ["OpenStore"]
