"""Limits of the bare stores: batch claim and finish by the driver, without a queue.

The tables and scripts hold only the necessary parts of a claim and an end: a status, an order, a
fence token, a partial index. Our figure, divided by these at the same batch, is the share of the
store that the queue leaves to users.
"""
