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
NOT_DONE = "not done"
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
        "lines": [f"slurm: unknown: Slurm could not be asked: {problem}", *_grouped(judged)],
    }


def registered_result(answer: dict[str, Any], problems: dict[str, str]) -> dict[str, Any]:
    """Return the action's result: it fails where a host is critical or unknown, or Slurm is; `msg` names them.

    `problems` says for a host what was asked for and not done; such a host fails too, however well it is.
    """
    hosts = [dict(each, problem=problems.get(each["host"])) for each in answer["hosts"]]
    result = {
        "changed": bool(answer.get("changed")),
        "verdict": answer["verdict"],
        "counts": dict(Counter(each["verdict"] for each in hosts)),
        "hosts": [each for each in hosts if each["verdict"] != "ok" or each["problem"]],
        "slurm": answer["slurm"],
    }
    if answer["verdict"] in FAILING or problems or any(each["verdict"] in FAILING for each in hosts):
        result.update(failed=True, msg=failing_sentence(hosts, answer["slurm"].get("error")))
    else:
        result["msg"] = f"{len(hosts)} hosts: {answer['verdict']}"
    return result


def printed_lines(answer: dict[str, Any], problems: dict[str, str]) -> list[str]:
    """Return the lines for a person, each safe for a terminal: the answer's own, then what was not done."""
    groups: dict[str, list[str]] = {}
    for host, problem in problems.items():
        groups.setdefault(problem, []).append(host)
    told = [f"{','.join(hosts)}: {NOT_DONE}: {problem}" for problem, hosts in groups.items()]
    return [printable(each, _LINE) for each in [*answer["lines"], *told]]


def failing_sentence(hosts: list[dict[str, Any]], error: str | None) -> str:
    """Return one sentence that names the hosts that are not well, the worst first, and says if Slurm was not asked."""
    failing = [each for each in hosts if each["verdict"] in FAILING or each["problem"]]
    failing.sort(key=lambda each: -VERDICTS.index(each["verdict"]))
    sentence = f"all {len(hosts)} hosts are well by their own reports"
    if failing:
        sentence = f"{len(failing)} of {len(hosts)} hosts are not well"
        names = [
            f"{each['host']} ({each['verdict'] if each['verdict'] in FAILING else NOT_DONE})"
            for each in failing[:NAMED_LIMIT]
        ]
        left = len(failing) - len(names)
        sentence += ": " + ", ".join(names) + (f" and {left} more" if left else "")
    return sentence + (f"; Slurm could not be asked: {printable(error, 300)}" if error else "")


def _judged(host: dict[str, Any]) -> dict[str, Any]:
    report = host["report"]
    if report is None:
        verdict, message = "unknown", host["error"]
    else:
        verdict = report["verdict"]
        message = " ".join(
            f"{each['code']}: {each['message']}" for each in report["findings"] if each["severity"] == verdict
        )
    decision = {"action": "none", "reason": None, "why": "Slurm could not be asked", "done": False}
    return {
        "host": host["host"],
        "node": host["node"],
        "verdict": verdict,
        "message": message,
        "state": None,
        "reason": None,
        "decision": decision,
    }


def _grouped(judged: list[dict[str, Any]]) -> list[str]:
    """Return one line per verdict and message, the worst first, in the program's form `HOSTS: VERDICT: message`."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in judged:
        groups.setdefault((each["verdict"], each["message"]), []).append(each["host"])
    worst_first = sorted(groups.items(), key=lambda group: (-VERDICTS.index(group[0][0]), group[1]))
    return [
        f"{','.join(hosts)}: {verdict}" + (f": {message}" if message else "")
        for (verdict, message), hosts in worst_first
    ]
