"""The program as a file: which source it was made from, and how a node's own copy of it is made.

The program travels as a zipapp of sources. A node's copy is the same zip with byte code beside every source, made for
the interpreter found there; the byte code is of the unchecked-hash form, because zipimport compares a time stamp in
local time and so distrusts byte code that was made in another time zone.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing itself costs 10 ms to import
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType
    from zipfile import ZipFile

CARRIED = "mpsfleet.pyz"  # beside the modules of a package that pip installed (hatch_build.py)
DIGEST_MEMBER = "SOURCE_DIGEST"
OPTIONS = "-IS"  # no environment, no user site, no site packages: nobody else's code on root's import path
EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest time a zip can hold; equal input gives equal bytes
_UNCHECKED_HASH = 0b01  # PEP 552: hash-based, and the source is not looked at
_WITHOUT_REFERENCES = 2  # marshal's format before it shared objects; it loads at half the speed
_SHEBANG_LIMIT = 127  # bytes the kernel reads of the first line (BINPRM_BUF_SIZE before Linux 5.1)


def source_archive() -> str | None:
    """Return the path of the zip that this process runs from; None when it runs from plain files."""
    archive = getattr(globals().get("__loader__"), "archive", None)
    return archive if isinstance(archive, str) else None


def carried_archive() -> str | None:
    """Return the path of the source zipapp that this package carries; None in a checkout, and in a zipapp itself."""
    import os

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), CARRIED)
    return path if os.path.isfile(path) else None


def source_digest() -> str | None:
    """Return the sha256 (hex) of the source zipapp; None when the program runs from plain files.

    A node's own copy carries it as a member, so that it names the source it was made from and not itself.
    """
    archive = source_archive()
    if archive is None:
        return None
    try:
        return str(globals()["__loader__"].get_data(DIGEST_MEMBER), "ascii").strip()
    except OSError:  # no such member, so the zip itself is the source
        return _sha256_of(archive)


def rebuild(source: bytes, digest: str, interpreter: str | None = None) -> bytes:
    """Return the bytes of a node's own copy of the program: sources, byte code and `digest`.

    `source` is the source zipapp, or an older copy (its byte code is made again). `interpreter` is the absolute path
    for the first line; default: the running one, whose byte code this is. Same input and interpreter, same bytes;
    before Python 3.11 the order inside a frozenset constant can differ, so compare with `is_rebuilt`. ValueError for a
    path that a first line cannot hold, SyntaxError for a source that does not compile. The form is PEP 552's.
    """
    from io import BytesIO
    from zipfile import ZIP_STORED, ZipFile

    target = BytesIO()
    target.write(shebang(interpreter or sys.executable))
    with ZipFile(BytesIO(source)) as old, ZipFile(target, "w", ZIP_STORED) as new:
        for name in sorted(old.namelist()):
            if name == DIGEST_MEMBER or name.endswith((".pyc", "/")):
                continue
            data = old.read(name)
            add_member(new, name, data)
            if name.endswith(".py"):
                add_member(new, name + "c", _byte_code(name, data))
        add_member(new, DIGEST_MEMBER, f"{digest}\n".encode("ascii"))
    return target.getvalue()


def is_rebuilt(copy: bytes, digest: str, interpreter: str | None = None) -> bool:
    """Return whether `copy` is `rebuild`'s work for this digest, this first line and the running interpreter."""
    from importlib.util import MAGIC_NUMBER
    from io import BytesIO
    from zipfile import BadZipFile, ZipFile

    if not copy.startswith(shebang(interpreter or sys.executable)):
        return False
    try:
        with ZipFile(BytesIO(copy)) as members:
            return (
                members.testzip() is None
                and members.read(DIGEST_MEMBER).decode("ascii", "replace").strip() == digest
                and members.read("__main__.pyc").startswith(MAGIC_NUMBER)
            )
    except (BadZipFile, KeyError):
        return False


def shebang(interpreter: str) -> bytes:
    """Return the first line that starts `interpreter` with `OPTIONS`. ValueError where the kernel would cut it."""
    line = f"#!{interpreter} {OPTIONS}\n".encode()
    if not interpreter.startswith("/") or len(line) > _SHEBANG_LIMIT or len(line.split()) != len(("#!python", OPTIONS)):
        message = f"the first line of a program cannot name the interpreter {interpreter!r}"
        raise ValueError(message)
    return line


def add_member(archive: ZipFile, name: str, data: bytes) -> None:
    """Add a plain file, stored: reading needs no zlib, and zlib's own version does not change the bytes."""
    from zipfile import ZIP_STORED, ZipInfo

    member = ZipInfo(name, EPOCH)
    member.create_system = 3  # Unix, wherever it is built
    member.external_attr = 0o100644 << 16
    archive.writestr(member, data, ZIP_STORED)


def _sha256_of(path: str) -> str:
    from hashlib import sha256

    with open(path, "rb") as file:
        return sha256(file.read()).hexdigest()


def _byte_code(name: str, source: bytes) -> bytes:
    from importlib.util import MAGIC_NUMBER, source_hash

    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    return MAGIC_NUMBER + _UNCHECKED_HASH.to_bytes(4, "little") + source_hash(source) + _marshalled(code)


def _marshalled(code: CodeType) -> bytes:
    """Return the code's bytes, which must not depend on the hash seed or on what else this process did."""
    import marshal

    constants = tuple(_constants(code))
    for each in constants:
        if isinstance(each, str) and len(each) <= 1:
            sys.intern(each)  # one object for the whole process, and marked as interned by whoever came first
    if any(isinstance(each, frozenset) for each in constants):  # references into a set follow its order
        try:
            return marshal.dumps(code, _WITHOUT_REFERENCES)
        except ValueError:  # a constant slice, which this format lacks (Python 3.14)
            pass
    # Written, read and written again: which objects are shared is then the code's own matter.
    return marshal.dumps(marshal.loads(marshal.dumps(code)))  # noqa: S302  our own bytes of a moment ago


def _constants(value: object) -> Iterator[object]:
    """Yield a constant and all that lie in it; a code object holds its own."""
    yield value
    inner = value if isinstance(value, (tuple, frozenset)) else getattr(value, "co_consts", ())
    for each in inner:
        yield from _constants(each)
