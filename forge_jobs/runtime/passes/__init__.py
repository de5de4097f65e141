"""The periodic passes of a pod over the whole store."""
