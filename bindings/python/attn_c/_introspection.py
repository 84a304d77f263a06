"""What the library knows, before any context exists: devices and operators."""

import functools
from typing import Any, Callable, NamedTuple, Optional

from . import errors, native  # noqa: F401  (errors: so that native raises them)
from ._values import integer


class DeviceInfo(NamedTuple):
    """A device; `reason` says why it cannot be used where `available` is false."""

    device_type: int
    device_id: int
    name: str
    available: bool
    reason: str


class SlotInfo(NamedTuple):
    """An input or output: `slot` is the standard's index, `may_alias` the slot of the input whose
    memory an output may share, `memory` the kinds of memory accepted on a CUDA context."""

    name: str
    slot: int
    optional: bool
    types: tuple[str, ...]
    shape: str
    memory: int
    may_alias: Optional[int]


class AttributeInfo(NamedTuple):
    """An attribute: `type` is one of int, float, string, ints, floats."""

    name: str
    type: str
    required: bool
    default: str
    summary: str


class OperatorInfo(NamedTuple):
    """An operator with everything that it takes and gives."""

    domain: str
    type: str
    version_first: int
    version_last: int
    summary: str
    inputs: tuple[SlotInfo, ...]
    outputs: tuple[SlotInfo, ...]
    attributes: tuple[AttributeInfo, ...]


_ATTRIBUTE_TYPES = {
    native.ATTN_ATTRIBUTE_INT: "int", native.ATTN_ATTRIBUTE_FLOAT: "float",
    native.ATTN_ATTRIBUTE_STRING: "string", native.ATTN_ATTRIBUTE_INTS: "ints",
    native.ATTN_ATTRIBUTE_FLOATS: "floats"}


def version() -> str:
    """The library's version, "major.minor.patch"."""
    return native.attn_version()


def abi_version() -> int:
    """The library's ABI: the major number in the high 16 bits, the minor one in the low."""
    return native.attn_abi_version()


def fault_text(bits: int) -> str:
    """The rules behind the bits of a FaultInfo in words, joined with "; "; empty for 0."""
    return whole_text(native.attn_fault_text, integer("bits", bits, "uint32"))


def devices() -> list[DeviceInfo]:
    """All devices, those that cannot be used included; the first is the CPU."""
    found = []
    for index in range(native.attn_device_count()):
        info = native.attn_device_info()
        native.attn_device_get_info(index, info)
        found.append(DeviceInfo(info.device_type, info.device_id, info.name,
                                bool(info.available), info.reason))
    return found


_FIRST_TEXT_BYTES = 4096


def whole_text(ask: Callable[..., tuple[str, int]], *arguments: Any) -> str:
    """The text of a function with the two-call rule."""
    text, needed = ask(*arguments, _FIRST_TEXT_BYTES)
    if needed > _FIRST_TEXT_BYTES:
        text, needed = ask(*arguments, needed)
    return text


def _slot(fill: Callable[[int, int, native.attn_slot_info], None], operator: int,
          position: int) -> SlotInfo:
    info = native.attn_slot_info()
    fill(operator, position, info)
    return SlotInfo(info.name, info.slot, bool(info.optional), tuple(info.types.split(",")),
                    info.shape, info.memory, info.may_alias if info.may_alias >= 0 else None)


def _attribute(operator: int, position: int) -> AttributeInfo:
    info = native.attn_attribute_info()
    native.attn_operator_get_attribute(operator, position, info)
    return AttributeInfo(info.name, _ATTRIBUTE_TYPES.get(info.type, str(info.type)),
                         bool(info.required), info.default_text, info.summary)


def _operator(index: int) -> OperatorInfo:
    info = native.attn_operator_info()
    native.attn_operator_get_info(index, info)
    return OperatorInfo(
        info.domain, info.type, info.version_first, info.version_last, info.summary,
        tuple(_slot(native.attn_operator_get_input, index, i) for i in range(info.input_count)),
        tuple(_slot(native.attn_operator_get_output, index, i) for i in range(info.output_count)),
        tuple(_attribute(index, i) for i in range(info.attribute_count)))


@functools.lru_cache(maxsize=1)
def _all_operators() -> tuple[OperatorInfo, ...]:
    return tuple(_operator(index) for index in range(native.attn_operator_count()))


def operators() -> list[OperatorInfo]:
    """All operators that the library knows."""
    return list(_all_operators())


def find_operator(domain: str, type: str, version: int) -> OperatorInfo:
    """The operator that the library made an op of."""
    wanted = (domain or "ai.onnx", type)
    for info in _all_operators():
        same = (info.domain or "ai.onnx", info.type) == wanted
        if same and info.version_first <= version <= info.version_last:
            return info
    raise errors.Internal(f"{domain}::{type} version {version} is not in the library's list")
