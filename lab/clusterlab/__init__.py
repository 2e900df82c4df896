"""A real Slurm cluster on one Debian machine: each node is a systemd-nspawn machine with its own init and slurmd."""
