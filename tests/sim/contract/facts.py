"""What the contract says: each fact is a sentence and what shows it, on NVIDIA's daemon and on the simulated one alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple

if TYPE_CHECKING:
    from contract.subject import Subject


class Fact(NamedTuple):
    """One fact."""

    about: str  # the table's section
    sentence: str
    show: Callable[[Subject], None]
    is_quiet: bool  # it leaves the daemon as it was, so one that runs is asked
    needs_root: bool  # NVIDIA's needs a caller who is another real user; the simulated one takes a declared one
    needs_real_user: bool  # both do


FACTS: list[Fact] = []


def fact(
    about: str, sentence: str, *, is_quiet: bool = False, needs_root: bool = False, needs_real_user: bool = False
) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    """Put what is decorated into the contract."""

    def put(show: Callable[[Subject], None]) -> Callable[[Subject], None]:
        FACTS.append(Fact(about, sentence, show, is_quiet, needs_root, needs_real_user))
        return show

    return put
