"""The Debian mirror: found in the host's own apt configuration, so the lab fetches from where this machine may."""

from __future__ import annotations

import os

from clusterlab.commands import must
from clusterlab.errors import LabUnavailableError

MIRROR_VARIABLE = "MPSFLEET_LAB_MIRROR"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def debian_mirror() -> str:
    """Return the URI of a Debian archive that apt already uses here.

    `apt-get indextargets` reads sources of both styles. A site without Debian sources sets MPSFLEET_LAB_MIRROR.
    Raises LabUnavailableError if there is none.
    """
    chosen = os.environ.get(MIRROR_VARIABLE)
    if chosen:
        return chosen
    listing = must(
        ("apt-get", "indextargets", "--format", "$(REPO_URI)|$(ORIGIN)|$(LABEL)|$(COMPONENT)"),
        "looking for a Debian mirror in apt's sources",
        timeout_s=30,
    )
    for line in listing.splitlines():
        fields = line.split("|")
        if fields[1:] == ["Debian", "Debian", "main"] and fields[0].startswith(("http:", "https:", "file:")):
            return fields[0]
    raise LabUnavailableError(
        "apt's sources name no Debian archive, or its lists are missing (apt-get update); "
        f"{MIRROR_VARIABLE} can name one"
    )


def proxy_environment() -> dict[str, str]:
    """Return the environment in which debootstrap's downloads take the proxy that apt is configured for, if any."""
    answer = must(
        ("apt-config", "shell", "http_proxy", "Acquire::http::Proxy", "https_proxy", "Acquire::https::Proxy"),
        "reading apt's proxy setting",
        timeout_s=30,
    )
    environment = dict(os.environ)
    for line in answer.splitlines():
        variable, _, quoted = line.partition("=")
        value = quoted.strip("'")
        if variable and value and value != "DIRECT":
            environment[variable] = value
    return environment
