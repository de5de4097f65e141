"""What the bare stores can do: batch claim and finish by the driver, with no queue around it.

The tables and scripts hold what a claim and an end cannot do without, and no more: a status, an
order, a fence token, a partial index. A figure of ours over these at the same batch says how much
of the store the queue leaves to its users.
"""
