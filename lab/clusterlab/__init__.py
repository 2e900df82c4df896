"""A real Slurm cluster on one Debian machine: every node is a systemd-nspawn machine with its own init, sshd and slurmd."""
