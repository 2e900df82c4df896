"""A simulated systemd, as much as services and their templates need: units, a supervisor per node, systemctl, sysusers.

Written from what systemd 252 does and says on Debian 12. The supervisor starts with the first unit that is started, and
is the parent of what it started, as PID 1 is.
"""
