"""The board: queues, pods and running jobs of this moment, in six calls."""
