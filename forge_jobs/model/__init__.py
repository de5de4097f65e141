"""Records and enums, frozen, no I/O. Import from the module that defines a name."""
