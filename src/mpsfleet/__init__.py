"""mpsfleet keeps NVIDIA MPS healthy on the GPU nodes of a Slurm cluster."""

__version__ = "0.1.0"
