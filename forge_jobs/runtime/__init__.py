"""Run jobs. Import from the module that defines a name, or the public names from the package."""
