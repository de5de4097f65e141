"""Runs jobs. Import from the module that defines a name, or the public ones from the package."""
