"""The slots of a queue: how they are shared out over pods, and the reasons for the shares."""
