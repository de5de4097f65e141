"""The live stream of changes to all viewers."""
