"""nvidia-smi, simulated: the words and exit status of NVIDIA's, from a state file; no GPU stands behind it.

It knows --query-gpu, --query-compute-apps, -L, -c, -i and the plain call. It imports nothing of this package, so a lab
can ship this very file.
"""

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False  # typing's import costs more than the rest of this program
if TYPE_CHECKING:
    from typing import Any, NoReturn

    Gpu = dict[str, Any]

_LOST, _NEEDS_RESET, _NOT_AVAILABLE, _ERROR = "[GPU is lost]", "[GPU requires reset]", "[N/A]", "[Unknown Error]"
# What the driver knows without asking the GPU; all else of a lost one is the token.
_KEPT_WHEN_LOST = ("index", "uuid", "pci.bus_id", "count", "driver_version")
_KEPT_BEFORE_RESET = (*_KEPT_WHEN_LOST, "name", "memory.used")
_KEPT_IN_ERROR = (*_KEPT_WHEN_LOST, "name", "memory.total", "compute_mode")
_ALIASES = {"gpu_index": "index", "gpu_uuid": "uuid", "gpu_name": "name", "gpu_bus_id": "pci.bus_id"}
_UNITS = {"memory.total": "MiB", "memory.used": "MiB", "memory.free": "MiB", "utilization.gpu": "%", "power.draw": "W"}
_APP_FIELDS = ("pid", "process_name", "name", "used_memory", "used_gpu_memory", "gpu_uuid", "gpu_name", "gpu_bus_id")
_MODES = {"0": "Default", "2": "Prohibited", "3": "Exclusive_Process"}
_OPTIONS = {
    "--query-gpu": "query",
    "--query-compute-apps": "apps",
    "--format": "format",
    "-i": "id",
    "--id": "id",
    "-c": "mode",
    "--compute-mode": "mode",
}
_BAD_ARGUMENT, _NO_PERMISSION, _NOT_FOUND, _NO_DRIVER, _BAD_INFOROM, _LOST_GPU, _MISMATCH = 2, 4, 6, 9, 14, 15, 18
_NO_DRIVER_TEXT = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n"
)
_NO_GPU = {
    "index": 0,
    "uuid": "",
    "bus_id": "",
    "name": "",
    "memory_mib": 0,
    "compute_mode": "",
    "compute_capability": "",
    "mig": "",
    "state": "ok",
}


def main(argv: list[str]) -> NoReturn:
    """Answer one call; `argv` is the node's root and the words of the call."""
    root, words = argv[0], argv[1:]
    path = f"{root}/sim/gpus.json"
    state = _read(path)
    while state.get("tool") == "hanging":
        time.sleep(0.2)
        state = _read(path)
    options = _options(words)
    if state["tool"] == "no-driver":
        _end(_NO_DRIVER_TEXT, _NO_DRIVER)
    if state["tool"] == "mismatch":
        library = ".".join(state["driver_version"].split(".")[:2])
        text = f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {library}\n"
        _end(text, _MISMATCH)
    present = [each for each in state["gpus"] if each["state"] != "missing"]
    gpus = _selected([{**each, "index": index} for index, each in enumerate(present)], options.get("id", ""))
    form = options.get("format", "").split(",")
    if "query" in options:
        _query(gpus, state, options["query"].split(","), form)
    if not gpus:
        _end("No devices were found\n", _NOT_FOUND)
    if "apps" in options:
        _apps(root, gpus, options["apps"].split(","), form)
    if "mode" in options:
        _set_compute_mode(root, gpus, state, options["mode"])
    if "list" in options:
        _end("".join(_listed(each) for each in gpus), 0)
    _plain(root, gpus, state)


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as stream:
            found: dict[str, Any] = json.load(stream)
            return found
    except FileNotFoundError:  # the node is being taken away
        sys.exit(_NO_DRIVER)


def _end(text: str, status: int) -> NoReturn:
    sys.stdout.write(text)
    sys.stdout.flush()
    sys.exit(status)


def _options(words: list[str]) -> dict[str, str]:
    """Return what the words ask for, by the names in _OPTIONS, and `list` for -L."""
    parts: list[str] = []
    for word in words:
        parts += word.split("=", 1) if word.startswith("--") and "=" in word else [word]
    found: dict[str, str] = {}
    parts.reverse()
    while parts:
        word = parts.pop()
        if word in ("-L", "--list-gpus"):
            found["list"] = "yes"
        elif word in _OPTIONS and parts:
            found[_OPTIONS[word]] = parts.pop().replace(" ", "")
        else:
            _end("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n", _BAD_ARGUMENT)
    return found


def _selected(gpus: list[Gpu], wanted: str) -> list[Gpu]:
    """Return the GPUs that -i names by index, UUID or bus id; all where it was not given."""
    if not wanted:
        return gpus
    found = []
    for word in wanted.upper().split(","):
        hits = [each for each in gpus if word in (str(each["index"]), each["uuid"].upper(), each["bus_id"].upper())]
        if not hits:
            _end("No devices were found\n", _NOT_FOUND)
        found += hits
    return found


def _fields(gpu: Gpu, state: dict[str, Any], count: int) -> dict[str, str]:
    """Return every field that can be asked of one GPU."""
    memory = str(gpu["memory_mib"]) if gpu["memory_mib"] is not None else _NOT_AVAILABLE
    mig = gpu["mig"]
    errors = str(gpu.get("ecc_uncorrected", 0))
    known = {
        "index": str(gpu["index"]),
        "uuid": gpu["uuid"],
        "pci.bus_id": gpu["bus_id"],
        "name": gpu["name"],
        "count": str(count),
        "driver_version": state["driver_version"],
        "compute_mode": gpu["compute_mode"],
        "persistence_mode": gpu.get("persistence_mode", ""),
        "memory.total": memory,
        "memory.used": "0" if gpu["memory_mib"] is not None else _NOT_AVAILABLE,
        "memory.free": memory,
        "utilization.gpu": _NOT_AVAILABLE if mig == "Enabled" else "0",
        "temperature.gpu": "30",
        "power.draw": "52.00",
        "fan.speed": _NOT_AVAILABLE,
        "serial": _NOT_AVAILABLE,
        "mig.mode.current": mig,
        "mig.mode.pending": mig,
        "ecc.mode.current": "Enabled",
        "ecc.errors.corrected.volatile.total": "0",
        "ecc.errors.uncorrected.volatile.total": errors,
        "ecc.errors.uncorrected.aggregate.total": errors,
        "pstate": "P0",
        "compute_cap": gpu["compute_capability"],
    }
    kept, token = {
        "lost": (_KEPT_WHEN_LOST, _LOST),
        "reset": (_KEPT_BEFORE_RESET, _NEEDS_RESET),
        "error": (_KEPT_IN_ERROR, _ERROR),
    }.get(gpu["state"], (tuple(known), ""))
    known = {name: value if name in kept else token for name, value in known.items()}
    return {**known, **{alias: known[name] for alias, name in _ALIASES.items()}}


def _query(gpus: list[Gpu], state: dict[str, Any], names: list[str], form: list[str]) -> NoReturn:
    known = _fields(_NO_GPU, state, 0)
    for name in names:
        if name not in known:
            _end(f'Field "{name}" is not a valid field to query.\n\n', _BAD_ARGUMENT)
    if not gpus:
        _end("No devices were found\n", _NOT_FOUND)
    lines = []
    if "noheader" not in form:
        lines.append(", ".join(f"{name} [{_UNITS[name]}]" if name in _UNITS else name for name in names))
    for gpu in gpus:
        values = _fields(gpu, state, len(gpus))
        lines.append(", ".join(_with_unit(name, values[name], form) for name in names))
    status = _LOST_GPU if any(each["state"] == "lost" for each in gpus) else 0
    for gpu in gpus:
        if gpu.get("inforom") == "corrupted":
            lines.append(f"WARNING: infoROM is corrupted at gpu {gpu['bus_id'][4:]}")
            status = status or _BAD_INFOROM
    _end("".join(f"{line}\n" for line in lines), status)


def _with_unit(name: str, value: str, form: list[str]) -> str:
    """Return a value as CSV has it: a number carries its unit unless nounits was asked for."""
    is_number = value.replace(".", "", 1).isdigit()
    return f"{value} {_UNITS[name]}" if name in _UNITS and is_number and "nounits" not in form else value


def _processes(root: str, gpus: list[Gpu]) -> list[dict[str, str]]:
    """Return the living processes that said they use one of the GPUs (in the files that simulated programs write)."""
    found = []
    folder = f"{root}/sim/mps"
    names = [name for name in os.listdir(folder) if name.endswith(".gpu")] if os.path.isdir(folder) else []
    for name in sorted(names, key=lambda each: int(each[:-4])):
        pid = name[:-4]
        if not os.path.exists(f"{root}/proc/{pid}/stat"):
            continue
        with open(f"{folder}/{name}", encoding="utf-8") as stream:
            index, memory, kind, program = stream.read().split(" ", 3)
        for gpu in gpus if index == "-1" else gpus[int(index) : int(index) + 1]:
            used = {"pid": pid, "process_name": program, "name": program, "used_memory": memory}
            where = {"gpu_uuid": gpu["uuid"], "gpu_name": gpu["name"], "gpu_bus_id": gpu["bus_id"]}
            found.append({**used, "used_gpu_memory": memory, **where, "type": kind, "gpu_index": str(gpu["index"])})
    return found


def _apps(root: str, gpus: list[Gpu], names: list[str], form: list[str]) -> NoReturn:
    for name in names:
        if name not in _APP_FIELDS:
            _end(f'Field "{name}" is not a valid field to query.\n\n', _BAD_ARGUMENT)
    unit = "" if "nounits" in form else " MiB"
    lines = [] if "noheader" in form else [", ".join(f"{n} [MiB]" if n.startswith("used") else n for n in names)]
    lines += [
        ", ".join(f"{each[name]}{unit}" if name.startswith("used") else each[name] for name in names)
        for each in _processes(root, [gpu for gpu in gpus if gpu["state"] == "ok"])
    ]
    _end("".join(f"{line}\n" for line in lines), 0)


def _set_compute_mode(root: str, gpus: list[Gpu], state: dict[str, Any], word: str) -> NoReturn:
    """Carry out -c, which is the node's owner's alone."""
    mode = {**_MODES, **{name.upper(): name for name in _MODES.values()}}.get(word.upper())
    if mode is None:
        _end(f"Invalid compute mode: {word}\n", _BAD_ARGUMENT)
    if os.geteuid() != os.stat(root).st_uid:
        _end("Insufficient Permissions\n", _NO_PERMISSION)
    said = ""
    for gpu in gpus:
        if gpu["state"] != "ok":
            _end(f"{said}Unable to set the compute mode for GPU {gpu['bus_id']}: GPU is lost\n", _LOST_GPU)
        for stored in state["gpus"]:
            if stored["uuid"] == gpu["uuid"]:
                stored["compute_mode"] = mode
        said += f"Set compute mode to {mode.upper()} for GPU {gpu['bus_id']}.\n"
    path = f"{root}/sim/gpus.json"
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as stream:
        json.dump(state, stream, indent=1)
    os.rename(f"{path}.{os.getpid()}", path)
    _end(f"{said}All done.\n", 0)


def _listed(gpu: Gpu) -> str:
    line = f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})\n"
    if gpu["mig"] == "Enabled":
        for device in (0, 1):
            line += f"  MIG 3g.20gb     Device  {device}: (UUID: MIG-{gpu['uuid'][4:-1]}{device})\n"
    return line


def _plain(root: str, gpus: list[Gpu], state: dict[str, Any]) -> NoReturn:
    """Answer the call without arguments with a short table."""
    bar = "+" + "-" * 77 + "+"
    rows = [bar, f"| NVIDIA-SMI {state['driver_version']} (SIMULATED)".ljust(78) + "|", bar]
    for gpu in gpus:
        text = f"|  {gpu['index']:>2}  {gpu['name']:<26} {gpu['bus_id']}  "
        memory = "Not Supported" if gpu["memory_mib"] is None else f"0MiB / {gpu['memory_mib']}MiB"
        text += "ERR!" if gpu["state"] != "ok" else f"{memory}  {gpu['compute_mode']}"
        rows.append(text.ljust(78) + "|")
    rows.append(bar)
    found = _processes(root, [gpu for gpu in gpus if gpu["state"] == "ok"])
    for each in found:
        text = f"|  {each['gpu_index']:>2}  {each['pid']:>8}  {each['type']:>4}  {each['name']:<30} "
        text += f"{each['used_memory']}MiB"
        rows.append(text.ljust(78) + "|")
    if not found:
        rows.append("|  No running processes found".ljust(78) + "|")
    _end("".join(f"{row}\n" for row in [*rows, bar]), 0)
