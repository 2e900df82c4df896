"""What a cell of nvidia-smi's answer is: a value, or one of the tokens that stand in its place. Pure.

The tokens are nvidia-smi's own words for NVML's errors; versions print them with and without brackets.
"""

from __future__ import annotations

VALUE = "value"
UNSUPPORTED = "unsupported"  # this GPU or driver has no such thing: no fault
ERROR = "error"
DENIED = "denied"  # could not be asked
UNKNOWN = "unknown"  # a token that is not known: could not be asked
LOST = "lost"
RESET = "reset"

_TOKENS = {
    "": UNSUPPORTED,  # a field that was not asked
    "n/a": UNSUPPORTED,
    "not supported": UNSUPPORTED,
    "requested functionality has been deprecated": UNSUPPORTED,
    "unknown error": ERROR,
    "err!": ERROR,
    "insufficient permissions": DENIED,
    "gpu is lost": LOST,
    "gpu requires reset": RESET,
}


def outcome(cell: str) -> str:
    """Return what a cell is, by the names above. A bracketed word that is not known is no value."""
    bare = cell.strip()
    is_bracketed = bare.startswith("[") and bare.endswith("]")
    found = _TOKENS.get(bare[1:-1].strip().lower() if is_bracketed else bare.lower())
    return found or (UNKNOWN if is_bracketed else VALUE)


def count(cell: str) -> int:
    """Return the number in a cell; 0 where it holds none."""
    bare = cell.strip()
    return int(bare) if bare.isascii() and bare.isdigit() and len(bare) <= 18 else 0  # noqa: PLR2004  # of 64 bits


def bus_of(text: str) -> str:
    """Return a bus id as the driver's log writes it (0000:3b:00) for any form of it, without the function; "" for none.

    nvidia-smi prints the domain with eight digits and capitals, the kernel with four and small letters.
    """
    parts = text.strip().lower().partition(".")[0].split(":")
    if len(parts) != 3 or not all(_is_hex(each) for each in parts):  # noqa: PLR2004  # domain, bus, device
        return ""
    domain, bus, device = (int(each, 16) for each in parts)
    return f"{domain:04x}:{bus:02x}:{device:02x}"


def _is_hex(text: str) -> bool:
    return 0 < len(text) <= 8 and all(each in "0123456789abcdef" for each in text)  # noqa: PLR2004  # a domain's digits
