"""Start the program: refuse an old Python in one sentence, else hand the command line to `mpsfleet.cli`.

Whatever `python3` a node has parses this file, so it keeps to what Python 2.7 and 3 share and imports the rest late.
"""

import sys

if __name__ == "__main__":
    if sys.version_info < (3, 9):
        sys.stderr.write(
            "mpsfleet: needs Python 3.9 or newer and was started by Python %s (%s); install a newer one beside it "
            "(RHEL 8: `dnf install python39`) and start it by name: `python3.9 %s ...`.\n"
            % (sys.version.split()[0], sys.executable, sys.argv[0])
        )
        sys.exit(3)
    import gc
    import os

    gc.set_threshold(100000)  # a run of some milliseconds has nothing to collect (1 ms of an audit)
    from mpsfleet.cli import main

    status = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # nobody reads any more: the exit code still speaks
        pass
    os._exit(status)  # the interpreter's own end takes every module apart (5 ms of an audit)
