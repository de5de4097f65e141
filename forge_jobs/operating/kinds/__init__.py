"""Kinds of jobs, as pods describe them."""
