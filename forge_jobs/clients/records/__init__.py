"""Changes of one value that leave a record, from whatever surface they come."""
