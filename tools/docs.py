"""Write the documentation pages that come from the sources: the finding codes. `--check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "src"))
from mpsfleet.codes import CODES, RESET, Code  # noqa: E402  needs the path above

PAGE = REPOSITORY / "docs" / "finding-codes.md"
HEAD = f"""\
# Finding codes

Written by `./dev docs` from `src/mpsfleet/codes.py`. At a prompt, `mpsfleet explain CODE` says the same; it also takes
a drain reason as `sinfo -R` shows it. A drain reason reads `mpsfleet: CODE` or `mpsfleet: CODE gpuN`;
`mpsfleet: {RESET}` is a planned reset.

Severity: *critical*: jobs fail, or the node is unsafe; *unknown*: could not be asked, which is never taken for healthy
or for broken; *warn*: jobs run. Cause: *node*, *user* (what a user does), or *either*. Only a critical finding that the
node itself causes can drain, and only where drains are asked for; "if shown" means that the finding must show this
itself.

| code | severity | cause | drains | meaning | remedy |
| --- | --- | --- | --- | --- | --- |
"""


def main(words: list[str]) -> int:
    """Write or compare the pages; returns the exit code."""
    text = HEAD + "".join(_row(each) for each in CODES)
    if words == ["--check"]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"docs: {PAGE.relative_to(REPOSITORY)} is not current; run `./dev docs`.\n")
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE.relative_to(REPOSITORY)}")
    return 0


def _row(code: Code) -> str:
    drains = "no" if not code.drain else ("yes" if code.origin == "node" else "if shown")
    return f"| `{code.code}` | {code.severity} | {code.origin} | {drains} | {code.meaning} | {code.remedy} |\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
