"""First figures: ``make bench``, or ``python -m bench --help``."""
