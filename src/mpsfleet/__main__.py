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
    from mpsfleet.cli import main

    sys.exit(main())
