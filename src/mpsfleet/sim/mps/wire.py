"""What simulated processes say to each other: the first byte of a packet is its kind."""

from __future__ import annotations

import os

HELLO = b"H"  # the daemon, to whoever connected
UI = b"U"  # a command line; then its declared uid
CLIENT = b"K"  # a CUDA program; then "PID UID"
ACCEPTED = b"A"
COMMAND = b"C"  # a command, and a line of the answer
END = b"E"  # no more commands; in the answer followed by the exit status as a byte
REFUSED = b"R"  # to a client; then the CUDA error
RUNNING = b"S"  # to a client, by its server
STATE = b"T"  # a server, to its daemon: its state
CLIENTS = b"L"  # a server, to its daemon: the pids of its clients
NEW = b"N"  # the daemon, to its server: a client's connection; "PID UID"
TERMINATE = b"X"  # the daemon, to its server: end this client
SHUTDOWN = b"Q"  # the daemon, to its server: end once there is no client

UI_SOCKET = "control_privileged"
USER_SOCKET = "control"
LONGEST_SOCKET = 106  # bytes of a socket's path that NVIDIA's programs can use: sun_path holds 108, one ends it


def pipe_directory(root: str) -> str:
    """Return the pipe directory of this process: the environment's, else NVIDIA's default inside the node."""
    return os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or f"{root}/tmp/nvidia-mps"  # noqa: S108  # inside the node


def log_directory(root: str) -> str:
    """Return the log directory of this process: the environment's, else NVIDIA's default inside the node."""
    return os.environ.get("CUDA_MPS_LOG_DIRECTORY") or f"{root}/var/log/nvidia-mps"
