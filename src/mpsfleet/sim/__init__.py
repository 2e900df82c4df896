"""The simulated fleet: nodes under one short directory, with NVIDIA's, Slurm's and systemd's tools as real processes.

It needs neither root nor a GPU, Slurm or systemd, and touches nothing outside its directory. The product works on such
a node as on a real one (`mpsfleet --root NODE node …`); nothing in it asks whether a node is simulated.
"""
