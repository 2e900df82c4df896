"""What nvidia-smi, NVIDIA's control program and systemctl cannot have answered, be it alone or beside /proc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

Document = dict[str, Any]
COMM = "nvidia-cuda-mps"
_CONTROL, _SMI, _SYSTEMCTL, _SCONTROL = "nvidia-cuda-mps-control", "nvidia-smi", "systemctl", "scontrol"
PROGRAMS = (_CONTROL, _SMI, _SYSTEMCTL, _SCONTROL)
_MARK = 'Unknown command "mpsfleet-next"\n'
_UNREACHED = ("Cannot find MPS control daemon process", "Cannot send command to MPS control daemon process")
_FAILURES = ("Failed to initialize NVML", "couldn't communicate with the NVIDIA driver", "No devices were found")
_LIST = "get_server_list"
_QUERY = "--query-gpu="


def objects(value: object, kind: str) -> Iterator[Document]:
    """Yield every value of one class in a recording."""
    if isinstance(value, dict):
        if value.get("$") == kind:
            yield value
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from objects(each, kind)


def texts(value: object) -> Iterator[str]:
    """Yield every text in a document, names of members too."""
    if isinstance(value, str):
        yield value
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from texts(each)


def program(question: str) -> str:
    """Return the program that a question runs; "" for a question of another kind."""
    head, colon, _ = question.partition(": ")
    return head.partition(" of /")[0] if colon else ""


def named_mps(answers: Document) -> set[int]:
    """Return the pids of the processes with MPS's name."""
    return {each["pid"] for each in objects(answers.get("procfs.named_mps", ()), "model.Process")}


def problems(answers: Document) -> list[str]:
    """Return a sentence for each answer of a command that cannot be."""
    found: list[str] = []
    for question, given in answers.items():
        for answer in objects(given, "host.children.Answer"):
            found += _ended(question, answer)
            if program(question) == _CONTROL:
                found += (*_control(question, answer, answers), *_listed(question, answer, answers))
            if program(question) == _SMI:
                found += _smi(question, answer)
            if program(question) == _SYSTEMCTL:
                found += _units(answer, answers)
    return [*found, *_drivers(answers)]


def _ended(question: str, answer: Document) -> Iterator[str]:
    """Check how a command ended against what it printed."""
    if answer.get("missing"):
        if answer["rc"] is not None or answer["out"] or answer["err"]:
            yield f"`{question}`: a program that is not there answered"
        return
    if answer["rc"] is None and not answer.get("capped") and not answer.get("state"):
        yield f"`{question}`: it did not end in time, and what it did then is not told"
    if answer["rc"] is None and program(question) in (_CONTROL, _SYSTEMCTL) and _is_whole(question, answer):
        yield f"`{question}`: it did not end in time, and answered all the same"


def _is_whole(question: str, answer: Document) -> bool:
    if program(question) == _SYSTEMCTL:
        return bool(answer["out"])  # it prints when systemd has answered
    return bool(answer["out"].count(_MARK)) and answer["out"].count(_MARK) >= len(_asked(question))


def _asked(question: str) -> list[str]:
    return question.partition(": ")[2].split("; ")


def _control(question: str, answer: Document, answers: Document) -> Iterator[str]:
    """Check an answer of a daemon's: it comes through a socket that lies there and that somebody listens on."""
    said = answer["out"] + answer["err"]
    is_unreached = any(each in said for each in _UNREACHED)
    if answer["rc"] == 0 and is_unreached:
        yield f"`{question}`: exit status 0 though no daemon was reached"
    if answer["rc"] not in (0, None) and _is_whole(question, answer):
        yield f"`{question}`: exit status {answer['rc']} though all was answered"
    if answer["rc"] != 0 or not answer["out"]:
        return
    path = question.partition(" of ")[2].partition(": ")[0]
    looks = answers.get(f"directories.look {path}", [])
    names = [one for each in objects(looks, "model.Directory") for one in each.get("names", ())]
    if not any((one["name"], one["kind"]) == ("control_privileged", "socket") for one in names):
        yield f"`{question}`: a daemon answered, and there is no socket in {path}"
    peers = objects(answers.get(f"mps.peer {path} control_privileged", []), "model.Peer")
    if not any(each["outcome"] == "listening" for each in peers):
        yield f"`{question}`: a daemon answered, and nobody listens in {path}"


def _listed(question: str, answer: Document, answers: Document) -> Iterator[str]:
    """Check the daemon's list of servers: each is a process, or was seen to be none any more."""
    asked = _asked(question)
    parts = answer["out"].split(_MARK)
    if answer["rc"] != 0 or _LIST not in asked or len(parts) <= len(asked):
        return
    dead = [pid for each in objects(answers.get("servers.read", ()), "servers_facts.Servers") for pid in _dead(each)]
    for word in parts[asked.index(_LIST)].split():
        if not word.isdigit():
            yield f"`{question}`: {word} is no server"
        elif int(word) not in named_mps(answers) and int(word) not in dead:
            yield f"`{question}`: server {word} is no process, and was not found to be dead"


def _dead(servers: Document) -> list[int]:
    return [server for _, server in servers.get("dead", ())]


def _smi(question: str, answer: Document) -> Iterator[str]:
    """Check nvidia-smi's rows: as many cells as fields, and each GPU once."""
    if answer["rc"] == 0 and any(each in answer["out"] + answer["err"] for each in _FAILURES):
        yield f"`{question}`: exit status 0 though it failed"
    words = _asked(question)
    if answer.get("missing") or not words[0].startswith(_QUERY) or answer["rc"] != 0:
        return
    fields = words[0][len(_QUERY) :].split(",")
    rows = [[cell.strip() for cell in line.split(",")] for line in answer["out"].splitlines()]
    if not rows:
        yield f"`{question}`: exit status 0 and no row"
    if any(len(each) != len(fields) for each in rows):
        yield f"`{question}`: a row has not {len(fields)} cells"
        return
    indices = [each[0] for each in rows if each[0].isdigit()]
    if indices != sorted(set(indices), key=int):
        yield f"`{question}`: an index comes twice, or before a lower one"
    for place in (fields.index("uuid"), fields.index("pci.bus_id")):
        cells = [each[place] for each in rows if "[" not in each[place]]
        if len(set(cells)) < len(cells):
            yield f"`{question}`: two GPUs have the same {fields[place]}"


def _drivers(answers: Document) -> Iterator[str]:
    """Compare the driver that nvidia-smi names with the one that is loaded."""
    loaded = answers.get("gpu.driver_version", [""])[-1]
    for question, given in answers.items():
        words = _asked(question)[0] if program(question) == _SMI else ""
        if not words.startswith(_QUERY):
            continue
        place = words[len(_QUERY) :].split(",").index("driver_version")
        for answer in objects(given, "host.children.Answer"):
            lines = answer["out"].splitlines() if answer["rc"] == 0 else []
            cells = {line.split(",")[place].strip() for line in lines if line.count(",") >= place}
            if any("[" not in each and each != loaded for each in cells):
                yield f"nvidia-smi names driver {', '.join(sorted(cells))}, and {loaded or 'none'} is loaded"


def _units(answer: Document, answers: Document) -> Iterator[str]:
    """Check systemd's word: what is active has a process, what is not has none, and nothing lies in the future."""
    seen = answers.get("units.now_s", [])
    for block in answer["out"].split("\n\n"):
        said = dict(line.partition("=")[::2] for line in block.splitlines())
        name, pid = said.get("Id", ""), int(said.get("MainPID", "0") or 0)
        is_running = (said.get("ActiveState"), said.get("SubState")) == ("active", "running")
        if is_running and not pid:
            yield f"{name} runs and has no process"
        if said.get("ActiveState") in ("inactive", "failed") and pid:
            yield f"{name} is {said['ActiveState']} and has process {pid}"
        if is_running and name.startswith("nvidia-mps") and pid and pid not in named_mps(answers):
            yield f"{name} runs as process {pid}, which is none with MPS's name"
        for key, value in said.items():
            if key.endswith("TimestampMonotonic") and seen and value.isdigit() and int(value) / 1e6 > seen[-1] + 2:
                yield f"{key} of {name} lies in the future"
