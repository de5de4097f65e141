"""A pod from start to stop, and the owner of each task and thread of the pod."""
