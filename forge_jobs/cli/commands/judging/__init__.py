"""Commands that judge: what is wrong, and what would be."""
