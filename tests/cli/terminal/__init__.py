"""Commands that stay: ``watch`` and ``top``, in real terminals and in pipes."""
