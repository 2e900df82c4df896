"""A simulated Slurm, as much as the product and a rehearsal need: one cluster of a fleet's nodes, its jobs, its tools.

Texts, exit statuses and times are those of Slurm 22.05.8, compared with the real one. There is no daemon: whoever asks
brings the state forward first, under the cluster's lock.
"""
