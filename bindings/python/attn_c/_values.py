"""Plain values on their way into the library: what does not fit there is refused in words."""

import operator
from typing import Any, Iterable, NoReturn, Optional

from .errors import InvalidArgument, InvalidType

_LIMITS = {"int32": (-2**31, 2**31 - 1), "int64": (-2**63, 2**63 - 1), "uint32": (0, 2**32 - 1),
           "uint64": (0, 2**64 - 1)}
_MOST_BITS_SHOWN = 256


class Uncopied:
    """What owns something of the library, and is one of its kind: a copy would give it back twice.
    """

    __slots__ = ()

    def __copy__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} of attn_c cannot be copied, nor pickled")

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__copy__()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        self.__copy__()


def shown(value: object) -> str:
    """The value for a message. Python writes no integers of thousands of digits, and nobody reads
    them."""
    try:
        bits = operator.index(value).bit_length()  # type: ignore[arg-type]
    except TypeError:
        bits = 0
    if bits > _MOST_BITS_SHOWN:
        return f"an integer of {bits} bits"
    try:
        return repr(value)
    except ValueError:  # such an integer within a list
        return f"a {type(value).__name__} of integers that are too long to show"


def integer(name: str, value: Any, type_name: str) -> int:
    """An integer of a type of the library. Raises InvalidType for what is none."""
    try:
        number: int = operator.index(value)
    except TypeError:
        raise InvalidType(f"{name}: expected an integer; got {type(value).__name__}") from None
    least, most = _LIMITS[type_name]
    if not least <= number <= most:
        raise InvalidArgument(f"{name}: expected {least} to {most}; got {shown(number)}")
    return number


def sizes(name: str, values: Any) -> tuple[int, ...]:
    """Integers of a sequence, as shapes and strides are."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidArgument(f"{name}: expected a sequence of integers; got {shown(values)}")
    return tuple(integer(name, value, "int64") for value in values)


def address(name: str, value: Optional[int]) -> Optional[int]:
    """An address or a foreign handle; None is null."""
    return None if value is None else integer(name, value, "uint64")


def real(name: str, value: Any) -> float:
    """A floating-point number."""
    try:
        return float(value)
    except OverflowError:
        raise InvalidArgument(f"{name}: expected a number that a float can hold; "
                              f"got {type(value).__name__} beyond that") from None


def text(name: str, value: Any) -> str:
    """A text as the library takes it: UTF-8 (bytes must be that already) without a NUL."""
    try:
        checked: str = value.decode() if isinstance(value, bytes) else value
        if isinstance(checked, str):
            checked.encode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise InvalidArgument(f"{name}: expected a text that UTF-8 can hold; got {value!r} "
                              f"({error.reason} at {error.start})") from error
    if not isinstance(checked, str):
        raise InvalidType(f"{name}: expected a text; got {type(value).__name__}")
    if "\0" in checked:
        raise InvalidArgument(f"{name}: expected a text without NUL; got {value!r}")
    return checked
