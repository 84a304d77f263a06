"""Runs golden cases: calls with all their memory and what must come of them.

A case is <name>.json, and <name>.bin with the data that it points into; the folder `golden` of this
package holds those of the wheel. They are laid out, called and compared with numpy alone.
"""

import json
import pathlib
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np

from ._context import Context
from ._memory import Tensor
from .errors import Error

FOLDER = pathlib.Path(__file__).parent / "golden"
_ALIGNMENT = 64
_FNV_OFFSET, _FNV_PRIME = 0xcbf29ce484222325, 0x100000001b3


class Outcome(NamedTuple):
    """One case: `wrong` is empty where all is as expected; `digest` is of all bytes that the call
    left behind, and of its message."""

    case: str
    about: str
    wrong: str
    digest: str


def names(folder: pathlib.Path = FOLDER) -> list[str]:
    """The cases of a folder."""
    return sorted(path.stem for path in folder.glob("*.json"))


def _block(described: Mapping[str, Any], data: bytes) -> np.ndarray:
    """A block of memory, aligned, with its first contents."""
    size = described["bytes"]
    room = np.empty(size + _ALIGNMENT, np.uint8)
    shift = -room.__array_interface__["data"][0] % _ALIGNMENT
    block = room[shift:shift + size]
    if "offset" in described:
        block[:] = np.frombuffer(data, np.uint8, size, described["offset"])
    else:
        block[:] = described["fill"]
    return block


class _Argument:
    """An input or output in its block."""

    def __init__(self, described: Mapping[str, Any], blocks: Sequence[np.ndarray]) -> None:
        self.name: str = described["name"]
        self.slot: int = described["slot"]
        self.type: str = described["type"]
        self.size: int = described["bits"] // 8
        self.block_number: int = described["memory"]
        self.block = blocks[self.block_number]
        self.shape = tuple(described["shape"])
        self.strides = tuple(described["strides"])
        self.offset: int = described["byte_offset"]

    def elements(self, dtype: Any, memory: np.ndarray) -> np.ndarray:
        """The elements within their block, or within another array of its size."""
        return np.ndarray(self.shape, dtype, memory, self.offset,
                          [stride * self.size for stride in self.strides])

    def value(self) -> Any:
        """What the call gets: numpy's array, and where numpy lacks the type a Tensor."""
        if not self.type.startswith(("bfloat16", "float8")):
            return self.elements(self.type, self.block)
        return Tensor(self.block, self.block.__array_interface__["data"][0], self.type, self.shape,
                      strides=self.strides, byte_offset=self.offset, byte_size=self.block.nbytes)

    def numbers(self) -> np.ndarray:
        """The elements as float64, in row-major order."""
        if self.type == "bfloat16":
            bits = self.elements(np.uint16, self.block).astype(np.uint32) << 16
            return bits.view(np.float32).astype(np.float64).ravel()
        return self.elements(self.type, self.block).astype(np.float64).ravel()

    def written(self, mask: np.ndarray) -> None:
        """Marks the bytes of the elements."""
        bytes_ = np.ndarray((*self.shape, self.size), bool, mask, self.offset,
                            [*(stride * self.size for stride in self.strides), 1])
        bytes_[...] = True


class _Case:
    """A case in memory."""

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        self.described = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        self.data = (folder / f"{name}.bin").read_bytes()
        self.blocks = [_block(one, self.data) for one in self.described["memory"]]
        self.before = [block.copy() for block in self.blocks]
        self.inputs = [_Argument(one, self.blocks) for one in self.described["inputs"]]
        self.outputs = [_Argument(one, self.blocks) for one in self.described["outputs"]]

    def run(self, context: Context) -> None:
        """The call, through the package's own API. Raises what it raises."""
        described, operator = self.described, self.described["operator"]
        kinds = {"int": int, "float": float, "string": str}
        op = context.op(operator["domain"], operator["type"], operator["version"],
                        operator["label"], **{one["name"]: kinds[one["kind"]](one["value"])
                                              for one in described["attributes"]})
        inputs = {one.name: one.value() for one in self.inputs}
        outputs = {one.name: one.value() for one in self.outputs}
        options = {"engine": described["engine"], **described["range"]}
        session = context.session()
        if described["call"] == "plan":
            op.prepare(inputs, outputs, **options).execute(inputs, outputs, session=session)
            return
        with op.bind(session, inputs, outputs) as binding:
            binding.prepare(**options)
            binding.execute()

    def check_results(self) -> str:
        """What is wrong with the outputs; empty where nothing is."""
        outputs = {one.slot: one for one in self.outputs}
        for result in self.described["results"]:
            output = outputs[result["slot"]]
            wrong = (self._check_bytes(output, result["bytes"]) if "bytes" in result
                     else self._check_values(output, result))
            if wrong:
                return f"{output.name}: {wrong}"
        return ""

    def _check_bytes(self, output: _Argument, wanted: Mapping[str, int]) -> str:
        got = output.elements(f"V{output.size}", output.block).tobytes()
        if got == self.data[wanted["offset"]:wanted["offset"] + wanted["count"]]:
            return ""
        return "an element has other bits"

    def _numbers(self, where: Mapping[str, int]) -> np.ndarray:
        return np.frombuffer(self.data, "<f8", where["count"], where["offset"])

    def _check_values(self, output: _Argument, result: Mapping[str, Any]) -> str:
        want, bounds = self._numbers(result["values"]), self._numbers(result["bounds"])
        got = output.numbers()
        with np.errstate(invalid="ignore", over="ignore"):
            squares = np.where(np.isnan(want) | (got == want), 0.0, (got - want) ** 2)
            rows = squares.reshape(-1, result["row"]).sum(1)
            off = np.sqrt(np.append(rows, rows.sum()))
            bad = np.flatnonzero(~(off <= bounds))
        if not bad.size:
            return ""
        first = int(bad[0])
        where = "the whole" if first == len(rows) else f"row {first}"
        return f"{where} is off by {off[first]:g}, at most {bounds[first]:g}"

    def check_memory(self, succeeded: bool) -> str:
        """Bytes that belong to no element of an output are as before; all are after a failure."""
        for number, (block, before) in enumerate(zip(self.blocks, self.before)):
            mask = np.zeros(block.shape, bool)
            for output in self.outputs:
                if succeeded and output.block_number == number:
                    output.written(mask)
            changed = np.flatnonzero((block != before) & ~mask)
            if changed.size:
                return f"memory block {number} was written at byte {changed[0]}"
        return ""


def _fnv(digest: int, data: bytes) -> int:
    for byte in data:
        digest = (digest ^ byte) * _FNV_PRIME & 0xffffffffffffffff
    return digest


def _judge(case: _Case, error: Error | None) -> str:
    expected = case.described.get("error")
    if error is None:
        if expected is not None:
            return f"it succeeded; expected status {expected['status']}"
        return case.check_results() or case.check_memory(True)
    if expected is None or error.status != expected["status"]:
        return f"status {error.status}, {str(error)!r}"
    if not str(error).startswith(expected["message"]):
        return f"the message is {str(error)!r}"
    return case.check_memory(False)


def run_case(context: Context, folder: pathlib.Path, name: str) -> Outcome:
    """Runs one case of a folder on a context of the CPU."""
    case = _Case(folder, name)
    failure: Error | None = None
    try:
        case.run(context)
    except Error as error:
        failure = error
    wrong = _judge(case, failure)
    digest = _FNV_OFFSET
    for block in case.blocks:
        digest = _fnv(digest, block.tobytes())
    if failure is not None:
        digest = _fnv(digest, str(failure).encode())
    return Outcome(name, case.described["about"], wrong, f"{digest:016x}")
