# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the acting verbs of the program (apply, remove, reset) answer, as the result of an Ansible module. Pure."""

WELL = ("ok", "warn")  # verdicts after which an acting verb has reached what it was asked for


def acting_result(answer: dict, is_judged: bool, is_refusal_told: bool, is_drained_for: bool = False) -> dict:
    """Return a module's result for the answer of an acting verb, with ``failed`` and ``msg`` where it failed.

    ``is_judged``: the node must be well afterwards. ``is_refusal_told``: a refusal is told in ``refused`` and does not
    fail, as in check mode, where the precondition may be what an earlier task of the play would have brought about.
    ``is_drained_for``: the same, only where daemons wait to be stopped, for which the caller will drain the node.

    A node on which there is nothing to do is ``skipped``, with the sentence in ``msg``, as Ansible's own words are.
    """
    refused = answer.get("refused") or None
    waiting = list(answer.get("waiting") or ())
    result = {
        "changed": bool(answer.get("changed")),
        "changes": [_without_contents(each) for each in answer.get("changes") or ()],
        "messages": list(answer.get("messages") or ()),
        "refused": refused,
        "waiting": waiting,
        "report": answer.get("report"),
    }
    if answer.get("skipped"):
        result.update(skipped=True, msg=answer["skipped"])
    is_told = is_refusal_told or (is_drained_for and waiting)
    problem = answer.get("failed") or ("" if is_told else _all_but(refused, waiting, answer))
    if is_judged:
        problem = problem or _still_sick(answer.get("report"))
    if problem:
        result.update(failed=True, msg=problem)
    return result


def diffs(changes: list) -> list:
    """Return Ansible's diff for the program's changes: contents as before and after, all else as one line each."""
    return [_diff(each) for each in changes]


def _all_but(refused: str, waiting: list, answer: dict) -> str:
    """Return a refusal; where only daemons that run are left as they are, with what became of the rest."""
    if not (refused and waiting and answer.get("changes")):
        return refused
    return "{0}. All else {1} done.".format(refused, "would be" if answer.get("dry_run") else "was")


def _diff(change: dict) -> dict:
    before, after = change.get("before"), change.get("after")
    what = change.get("what", "")
    if before is None and after is None:
        return {"prepared": "{0} {1}: {2}\n".format(change.get("action", ""), what, change.get("detail", ""))}
    return {"before_header": what, "after_header": what, "before": _lines(before or ""), "after": _lines(after or "")}


def _lines(text: str) -> str:
    """Return the text with a line end at its end, as Ansible's diff expects; "" for none."""
    return text if not text or text.endswith("\n") else text + "\n"


def _without_contents(change: dict) -> dict:
    return {key: change.get(key) for key in ("what", "action", "detail")}


def _still_sick(report: dict) -> str:
    """Return why the node is not well after the verb; "" where it is, or where the verb left no report."""
    if not report or report.get("verdict") in WELL:
        return ""
    told = []
    for each in report.get("findings") or ():
        if each.get("severity") not in WELL:
            told.append("{0}: {1}.".format(each.get("code"), str(each.get("message")).rstrip(".")))
            if each.get("remedy") and each["remedy"] not in told:
                told.append(each["remedy"])
    return "It was done, and the node is still {0}. {1}".format(report.get("verdict"), " ".join(told)).strip()
