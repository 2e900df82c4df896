"""The daemon's log: every line passes the pipe directory's `log` fifo, which a thread reads into the log file.

So it is with NVIDIA's daemon: clients write their lines there too. What stands in the log is a hint and no evidence.
"""

from __future__ import annotations

import os
import struct
import threading
import time

_HEADER = struct.Struct("<4sidH10s")  # mark, pid, seconds since 1970, length of the text, component
_MARK = b"mps\0"
_LONGEST = 4096


class Log:
    """The log of one daemon. `fifo` is opened for both ways, `output` is the log file or standard output, or -1."""

    def __init__(self, fifo: str, output: int) -> None:
        self._output = output
        self._reading = os.open(fifo, os.O_RDWR | os.O_CLOEXEC)
        self._writing = os.open(fifo, os.O_WRONLY | os.O_CLOEXEC)
        threading.Thread(target=self._read, daemon=True).start()

    def say(self, text: str, pid: int = 0) -> None:
        """Write a line; `pid` where it is another process's."""
        body = text.encode("utf-8", "replace")[:_LONGEST]
        header = _HEADER.pack(_MARK, pid or os.getpid(), time.time(), len(body), b"Control")
        os.write(self._writing, header + body)

    def settle(self) -> None:
        """Wait until what was written is in the file, at most a second: the process is about to end."""
        import fcntl
        import termios

        waiting = bytearray(4)
        for _ in range(100):
            fcntl.ioctl(self._reading, termios.FIONREAD, waiting)
            if waiting == bytearray(4):
                break
            time.sleep(0.01)
        time.sleep(0.01)  # the last line has been read and is being written

    def _read(self) -> None:
        while True:
            header = os.read(self._reading, _HEADER.size)
            if len(header) != _HEADER.size or not header.startswith(_MARK):
                return
            _, pid, when, length, component = _HEADER.unpack(header)
            text = os.read(self._reading, length) if length else b""
            if self._output >= 0:
                name = component.rstrip(b"\0").decode("utf-8", "replace")
                os.write(self._output, line(when, name, pid, text.decode("utf-8", "replace")).encode())


def line(when: float, component: str, pid: int, text: str) -> str:
    """Return a line as NVIDIA's logs have it."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
    return f"[{stamp}.{int(when * 1000) % 1000:03d} {component} {pid:5d}] {text}\n"
