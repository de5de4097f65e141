"""Terms of filters as SQL."""
