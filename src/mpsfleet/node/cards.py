"""The GPUs of a node as values: which they are, which of them a configuration means. Pure.

An index is nvidia-smi's own and follows PCI order; a minor number is the driver's and follows the order of discovery;
Slurm's index follows gres.conf. They agree on many machines and not on all, so GPUs are joined by UUID and minor.
"""

from __future__ import annotations

import json

from mpsfleet.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Union

    from mpsfleet.node.model import Gpu

RECORD = "/etc/mpsfleet/gpus.json"
SCHEMA = 1
if TYPE_CHECKING:
    Selector = Union[int, str]
_MIG_ON = "enabled"
# Models of compute capability below 7.0, as nvidia-smi names them
_BEFORE_VOLTA = ("P100", "P40", "P4", "P6", "M60", "M40", "M10", "M6", "M4", "K80", "K40", "K20", "K10", "K520")
_FAMILIES_BEFORE_VOLTA = ("GTX 10", "GTX 9", "GTX 7", "TITAN X", "QUADRO P", "QUADRO M", "QUADRO K")


class Card(NamedTuple):
    """One GPU. `minor` is N of /dev/nvidiaN, -1 where the driver does not tell."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks a GPU for
    uuid: str
    minor: int
    bus_id: str
    name: str
    mig: str = ""  # as nvidia-smi prints it: "Enabled", "Disabled", "[N/A]"
    instance: str = ""  # the control daemon that serves it: "node", "0", ...; "" for a GPU that is left as it is
    compute_mode: str = ""  # before the deploy changed it, to be put back at removal; "" where it was not changed

    @property
    def is_mig(self) -> bool:
        """Whether the GPU is split into MIG devices."""
        return self.mig.lower() == _MIG_ON


def is_before_volta(name: str) -> bool:
    """Return whether a model, by its name in nvidia-smi, has a compute capability below 7.0."""
    words = {part for word in name.upper().split() for part in word.split("-")}
    return not words.isdisjoint(_BEFORE_VOLTA) or any(each in name.upper() for each in _FAMILIES_BEFORE_VOLTA)


def text(cards: tuple[Card, ...]) -> str:
    """Return the content of the record, a line a GPU."""
    rows = ",\n  ".join(json.dumps(each._asdict()) for each in cards)
    return f'{{"schema": {SCHEMA}, "gpus": [\n  {rows}\n]}}\n' if cards else f'{{"schema": {SCHEMA}, "gpus": []}}\n'


def parse(content: bytes) -> tuple[Card, ...]:
    """Read a record. ValueError where it is not what a deploy of this version writes."""
    try:
        document = json.loads(content)
        if document["schema"] == SCHEMA:
            return tuple(_card(each) for each in document["gpus"])
    except (KeyError, TypeError, RecursionError):
        raise ValueError("the record of GPUs is not what a deploy writes") from None
    raise ValueError("the record of GPUs is of another version of mpsfleet")


def _card(values: dict[str, Any]) -> Card:
    if not isinstance(values, dict):
        raise TypeError(values)
    kinds = {"index": int, "minor": int}
    for name in Card._fields:
        if not isinstance(values.get(name, kinds.get(name, str)()), kinds.get(name, str)):
            raise TypeError(name)
    return Card(**{name: values[name] for name in Card._fields if name in values})


def join(gpus: tuple[Gpu, ...], by_uuid: dict[str, int]) -> tuple[Card, ...]:
    """Return nvidia-smi's rows with the driver's minor numbers. A row whose UUID is a token of trouble is left out."""
    return tuple(
        Card(int(each.number), each.uuid, by_uuid.get(each.uuid, -1), each.bus_id, each.name, each.mig)
        for each in gpus
        if each.number.isascii() and each.number.isdigit() and each.uuid.startswith("GPU-")
    )


def is_selected(card: Card, selectors: tuple[Selector, ...]) -> bool:
    """Tell whether a GPU is among those named: by index, by UUID, or by a part of the model's name.

    A model is compared as Slurm's AutoDetect compares a Type: lower case, blanks as underscores, anywhere in the name.
    """
    return any(_matches(card, each) for each in selectors)


def _matches(card: Card, selector: Selector) -> bool:
    if isinstance(selector, int):
        return card.index == selector
    if selector.startswith("GPU-"):
        return card.uuid == selector
    return _plain(selector) in _plain(card.name)


def _plain(name: str) -> str:
    return name.lower().replace(" ", "_")


def unmatched(cards: tuple[Card, ...], selectors: tuple[Selector, ...]) -> tuple[Selector, ...]:
    """Return the indices and UUIDs among the selectors that no GPU of this node has; a model may be of other nodes."""
    exact = tuple(each for each in selectors if isinstance(each, int) or each.startswith("GPU-"))
    return tuple(each for each in exact if not any(_matches(card, each) for card in cards))
