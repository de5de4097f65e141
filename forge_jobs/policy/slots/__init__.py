"""How the slots of a queue are shared out over pods, and why a pod has as many as it has."""
