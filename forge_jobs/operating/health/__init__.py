"""Pods, the health of the store, and the actor."""
