"""Several worker processes under one command: the parent, and the link to each of them."""
