"""Parts of the page of one queue."""
