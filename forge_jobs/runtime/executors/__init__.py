"""Programs outside the pod's process: the children that run handlers, and how they are ended."""
