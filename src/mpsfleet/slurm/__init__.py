"""What Slurm believes about the nodes, and what it is told: run on the controller, needs nothing but scontrol.

Reading and deciding take values and return values; `commands` alone runs a program, `drains` alone decides to write.
Nothing here imports the node's side: a node's report arrives as JSON, from a stranger.
"""
