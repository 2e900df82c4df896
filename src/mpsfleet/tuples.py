"""NamedTuple for a node's healthy path: typing's own to a type checker, and far cheaper to define when it runs.

An audit defines some sixty of these classes. typing's NamedTuple compiles every annotation and a constructor for each
class, and typing itself has to be loaded first: together a third of the time of the program itself in an audit.
Here a class keeps its body's annotations as text and shares one constructor, so nothing is compiled.
"""

from __future__ import annotations

from operator import itemgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, NamedTuple
else:

    class _Values(tuple):
        """What every class of named values can do; `_fields` and `_field_defaults` are the class's own."""

        __slots__ = ()
        _fields: tuple[str, ...] = ()
        _field_defaults: dict[str, Any] = {}  # noqa: RUF012  # each class has its own

        def __new__(cls, *values: object, **named: object) -> _Values:  # noqa: PYI034  # typing's Self is not loaded
            """Make a value. TypeError for a field that is missing, unknown or given twice."""
            if named or len(values) != len(cls._fields):
                values = cls._filled(values, named)
            return tuple.__new__(cls, values)

        @classmethod
        def _filled(cls, values: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
            if len(values) > len(cls._fields):
                message = f"{cls.__name__} takes {len(cls._fields)} values, not {len(values)}"
                raise TypeError(message)
            given = {**cls._field_defaults, **named}
            whole = list(values)
            for each in cls._fields[len(values) :]:
                if each not in given:
                    message = f"{cls.__name__} lacks {each}"
                    raise TypeError(message)
                whole.append(given[each])
                named.pop(each, None)
            if named:
                message = f"{cls.__name__} has no field {', '.join(named)}, or it is given twice"
                raise TypeError(message)
            return whole

        @classmethod
        def _make(cls, values: Iterable[Any]) -> _Values:
            return cls(*values)

        def _replace(self, **named: object) -> _Values:
            """Return a copy with some fields changed. TypeError for an unknown field."""
            whole = [named.pop(name, value) for name, value in zip(self._fields, self)]
            if named:
                message = f"{type(self).__name__} has no field {', '.join(named)}"
                raise TypeError(message)
            return tuple.__new__(type(self), whole)

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self))

        def __repr__(self) -> str:
            shown = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self))
            return f"{type(self).__name__}({shown})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

    class _Kind(type):
        """Makes a class of named values from a body of annotated names."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            fields = tuple(body.get("__annotations__", ()))
            defaults = {each: body[each] for each in fields if each in body}
            more = {each: property(itemgetter(number)) for number, each in enumerate(fields)}
            own = {"__slots__": (), "__match_args__": fields, "_fields": fields, "_field_defaults": defaults}
            return super().__new__(cls, name, bases, {**body, **more, **own})

    NamedTuple = _Kind("NamedTuple", (_Values,), {"__module__": __name__, "__doc__": _Values.__doc__})

__all__ = ["NamedTuple"]
