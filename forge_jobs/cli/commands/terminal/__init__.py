"""Commands that stay and show what goes on: ``watch`` and ``top``."""
