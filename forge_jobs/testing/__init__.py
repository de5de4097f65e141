"""What tests, demos and experiments need besides the library: servers that start by themselves."""
