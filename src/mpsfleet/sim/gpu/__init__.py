"""A node's GPUs, simulated: the state from which its nvidia-smi answers, and its kernel log. For the fleet's owner."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mpsfleet.sim.gpu.state import (
        add_xid,
        count,
        heal,
        install_tools,
        set_compute_mode,
        set_ecc_errors,
        set_mig,
        set_state,
        set_tool,
        set_unified_memory,
    )
else:

    def __getattr__(name: str) -> object:
        """Import the functions when one is asked for: nvidia-smi itself comes through here and needs none."""
        if name not in __all__:
            raise AttributeError(name)
        from mpsfleet.sim.gpu import state

        return getattr(state, name)


__all__ = (
    "add_xid",
    "count",
    "heal",
    "install_tools",
    "set_compute_mode",
    "set_ecc_errors",
    "set_mig",
    "set_state",
    "set_tool",
    "set_unified_memory",
)
