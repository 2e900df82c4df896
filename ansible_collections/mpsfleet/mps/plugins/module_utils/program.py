# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program on the target: the installed one or the one that was sent along, run once, its answer decoded.

Kept to syntax that Python 3.6 parses (ansible-core 2.15 still meets it on RHEL 8): an old interpreter then gets a
sentence from here, not a SyntaxError. For the same reason there is no ``from __future__ import annotations``.
"""

import base64
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import zlib

LINK = "/usr/sbin/mpsfleet"
LIBRARY = "/usr/lib/mpsfleet"
NAME = "mpsfleet"
DIGEST_CHARACTERS = 12  # of the digest in the name of an installed version's folder
OLDEST_PYTHON = (3, 9)
ANSWER_LIMIT = 1 << 20  # bytes of an answer; a sick node's report is about 8 KiB
REFUSED = 75  # exit code: a precondition does not hold, nothing was changed
SENTENCE_PREFIX = "mpsfleet: "  # with which the program says on stderr why it gives no answer
GRACE_S = 2  # for a killed program's pipes to close; a child in the driver's uninterruptible sleep keeps them open

# From scratch: nothing of the login's environment reaches root's program.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}

# The options with which an action plugin sends the program along; see doc_fragments/program.py.
ARGUMENTS = {
    "program": {"type": "str", "no_log": True},
    "program_digest": {"type": "str"},
    "root": {"type": "str"},
}


class ProgramError(Exception):
    """The program could not be run, or its answer not be understood. One sentence."""


class ProgramMissing(Exception):
    """The program is not installed here and was not sent along."""


class Answer:
    """What one run of the program said: the decoded object, its exit code, and whether the program was sent along."""

    def __init__(self, values: dict, rc: int, sent: bool) -> None:
        self.values = values
        self.rc = rc
        self.sent = sent


def installed_program(digest: str, link: str = LINK, library: str = LIBRARY, owner: int = 0, root: str = "") -> str:
    """Return the path of the installed program made from the file with this sha256; "" where there is none to trust.

    All paths are below ``root``, as the link's own target is.

    ``mpsfleet node apply`` keeps each version in a folder ``VERSION-DIGEST`` and points a link at it, so that the link
    alone tells which program it is. A link or path that others than ``owner`` can change counts as none: then the
    carried program runs instead, so nothing is lost by distrust.
    """
    try:
        target = os.readlink(root + link)
        folder, name = os.path.split(target)
        is_this_program = (
            name == NAME
            and os.path.dirname(folder) == library
            and folder.endswith("-" + digest[:DIGEST_CHARACTERS])
            and os.lstat(root + link).st_uid == owner
        )
        if not is_this_program:
            return ""
        for path, is_kind in ((library, stat.S_ISDIR), (folder, stat.S_ISDIR), (target, stat.S_ISREG)):
            found = os.lstat(root + path)
            if not is_kind(found.st_mode) or found.st_uid != owner or found.st_mode & 0o022:
                return ""
    except OSError:  # not installed, or not readable: either way the carried program is used
        return ""
    return root + target


def unpacked(program: str, digest: str) -> bytes:
    """Return the zipapp that was sent along (zlib in base64). ProgramError where it is not the one announced."""
    try:
        content = zlib.decompress(base64.b64decode(program))
    except (ValueError, zlib.error) as error:
        raise ProgramError("The program that Ansible sent along cannot be unpacked: {0}.".format(error)) from error
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise ProgramError("The program that Ansible sent along arrived damaged: its sha256 is {0}.".format(found))
    return content


def old_python_problem(version: tuple, executable: str) -> str:
    """Return why this interpreter cannot run the program; "" where it can."""
    if version[:2] >= OLDEST_PYTHON:
        return ""
    return (
        "mpsfleet needs Python 3.9 or newer on the target, and Ansible uses {0} ({1}) there: "
        "install a newer one and name it in ansible_python_interpreter."
    ).format(executable, ".".join(str(each) for each in version[:3]))


def ask(parameters: dict, words: tuple, stdin: str, timeout_s: float, tmpdir: str) -> Answer:
    """Run the program with ``words`` and return its answer.

    ``parameters`` are the module's own and hold ``program`` and ``program_digest``; the program is unpacked below
    ``tmpdir`` where the installed one is another. ProgramMissing where it would have to be sent, ProgramError for all
    else that goes wrong.
    """
    digest = parameters["program_digest"]
    if not digest:
        raise ProgramError("program_digest is missing: this module is to be called through its action plugin.")
    root = parameters.get("root") or ""
    installed = installed_program(digest, owner=os.geteuid() if root else 0, root=root)
    words = (("--root", root) if root else ()) + words
    if installed:
        return _answer((installed,) + words, stdin, timeout_s, sent=False)
    if not parameters["program"]:
        raise ProgramMissing
    problem = old_python_problem(tuple(sys.version_info), sys.executable)
    if problem:
        raise ProgramError(problem)
    content = unpacked(parameters["program"], digest)
    folder = tempfile.mkdtemp(prefix="mpsfleet-", dir=tmpdir)
    try:
        path = os.path.join(folder, NAME)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        return _answer((sys.executable, "-IS", path) + words, stdin, timeout_s, sent=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answer(argv: tuple, stdin: str, timeout_s: float, sent: bool) -> Answer:
    rc, stdout, stderr = run(argv, stdin, timeout_s)
    return Answer(decoded(stdout, rc, stderr), rc, sent)


def run(argv: tuple, stdin: str, timeout_s: float) -> tuple:
    """Run ``argv`` in a session of its own and return ``(rc, stdout, stderr)``, the streams as bytes.

    ProgramError where it cannot be started, or does not end in time; then its whole process group is killed.
    """
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramError("{0} cannot be started: {1}.".format(argv[0], error.strerror)) from error
    try:
        stdout, stderr = process.communicate(stdin.encode("utf-8"), timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        _kill_group(process)
        raise ProgramError("mpsfleet did not end within {0:g} s and was stopped.".format(timeout_s)) from error
    return process.returncode, stdout, stderr


def _kill_group(process: subprocess.Popen) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=GRACE_S)
    except (OSError, subprocess.TimeoutExpired):  # gone already, or unkillable: waiting longer would hang the play
        return


def decoded(stdout: bytes, rc: int, stderr: bytes) -> dict:
    """Return the JSON object that the program printed; its schema must be 1. ProgramError with its own words else."""
    if len(stdout) > ANSWER_LIMIT:
        raise ProgramError("mpsfleet printed {0} bytes, more than an answer can have.".format(len(stdout)))
    try:
        values = json.loads(stdout.decode("utf-8"))
    except ValueError:
        values = None
    if isinstance(values, dict) and values.get("schema") == 1:
        return values
    words = stderr.decode("utf-8", "replace").strip().splitlines()
    if words and words[-1].startswith(SENTENCE_PREFIX):
        raise ProgramError(words[-1][len(SENTENCE_PREFIX) :][:1000])
    said = "it said: {0}".format(words[-1][:300]) if words else "it said nothing"
    return_code = "exit code {0}".format(rc) if rc >= 0 else "signal {0}".format(-rc)
    raise ProgramError("mpsfleet gave no answer ({0}); {1}".format(return_code, said))
