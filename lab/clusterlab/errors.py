"""Errors: what was tried, on what, what came back, in one sentence for the person at the terminal."""

from __future__ import annotations


class LabError(Exception):
    """Something the lab was asked for did not come about."""

    exit_code = 1


class LabUnavailableError(LabError):
    """This machine cannot hold a lab at all (not root, no mirror, no MPS package): tests may skip for this reason."""

    exit_code = 69
