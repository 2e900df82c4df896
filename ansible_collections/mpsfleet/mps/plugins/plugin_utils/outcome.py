# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a verdict comes to for the person who runs the play: lines, a failing sentence, and what is registered.

Where the program on the controller judged, its answer is used as it is. Where it could not be asked, the nodes' own
verdicts stand, Slurm is unknown, and nothing was drained.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ansible_collections.mpsfleet.mps.plugins.plugin_utils.audits import VERDICTS
from ansible_collections.mpsfleet.mps.plugins.plugin_utils.printable import printable

FAILING = ("critical", "unknown")
NAMED_LIMIT = 20  # hosts named in the failing sentence; the lines name all
_LINE = 2000  # characters


def local_answer(hosts: list[dict[str, Any]], problem: str) -> dict[str, Any]:
    """Return an answer of the program's form from the nodes' reports alone; `problem` says why Slurm was not asked."""
    judged = [_judged(each) for each in hosts]
    worst = max([each["verdict"] for each in judged] + ["unknown"], key=VERDICTS.index)
    return {
        "verdict": worst,
        "changed": False,
        "slurm": {"asked": False, "cluster": None, "error": problem},
        "hosts": judged,
        "lines": [*_grouped(judged), f"unknown: Slurm could not be asked: {problem}"],
    }


def registered_result(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the action's result: it fails where a host is critical or unknown, or Slurm is; `msg` names them."""
    hosts = [each for each in answer["hosts"] if each["verdict"] != "ok"]
    result = {
        "changed": bool(answer.get("changed")),
        "verdict": answer["verdict"],
        "counts": dict(Counter(each["verdict"] for each in answer["hosts"])),
        "hosts": hosts,
        "slurm": answer["slurm"],
        "lines": [printable(each, _LINE) for each in answer["lines"]],
    }
    if answer["verdict"] in FAILING or any(each["verdict"] in FAILING for each in hosts):
        result.update(failed=True, msg=failing_sentence(answer))
    else:
        result["msg"] = f"{len(answer['hosts'])} hosts: {answer['verdict']}"
    return result


def failing_sentence(answer: dict[str, Any]) -> str:
    """Return one sentence that names the hosts that are not well, the worst first."""
    failing = [each for each in answer["hosts"] if each["verdict"] in FAILING]
    failing.sort(key=lambda each: -VERDICTS.index(each["verdict"]))
    sentence = f"{len(failing)} of {len(answer['hosts'])} hosts are not well"
    if failing:
        names = [f"{each['host']} ({each['verdict']})" for each in failing[:NAMED_LIMIT]]
        left = len(failing) - len(names)
        sentence += ": " + ", ".join(names) + (f" and {left} more" if left else "")
    error = answer["slurm"].get("error")
    return sentence + (f"; Slurm could not be asked: {printable(error, 300)}" if error else "")


def _judged(host: dict[str, Any]) -> dict[str, Any]:
    report = host["report"]
    if report is None:
        verdict, message = "unknown", host["error"]
    else:
        verdict = report["verdict"]
        message = " ".join(f"{each['code']}: {each['message']}" for each in report["findings"]
                           if each["severity"] == verdict)
    decision = {"action": "none", "reason": None, "why": "Slurm could not be asked", "done": False}
    return {"host": host["host"], "node": host["node"], "verdict": verdict, "message": message,
            "state": None, "reason": None, "decision": decision}


def _grouped(judged: list[dict[str, Any]]) -> list[str]:
    """Return one line per verdict and message, the worst first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in judged:
        groups.setdefault((each["verdict"], each["message"]), []).append(each["host"])
    worst_first = sorted(groups.items(), key=lambda group: (-VERDICTS.index(group[0][0]), group[1]))
    return [f"{verdict}: {', '.join(hosts)}" + (f": {message}" if message else "")
            for (verdict, message), hosts in worst_first]
