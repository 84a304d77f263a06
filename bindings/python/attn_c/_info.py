"""The commands `info` and `list`: what there is, before anything is asked of it."""

import argparse
import pathlib
import platform
import sys
from typing import Any

import numpy as np

from . import _report, native
from ._context import Context
from ._introspection import OperatorInfo, abi_version, devices, operators, version
from .errors import Error

PACK_NAME = "attn_c_kernels.pack"


def library_path() -> pathlib.Path:
    """The file of the plugin that this process uses."""
    maps = pathlib.Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    for line in maps.splitlines():
        path = pathlib.Path(line.partition("/")[1] + line.partition("/")[2])
        if path.name.startswith("libattn_c.so"):
            return path
    return pathlib.Path(__file__).parent / "libattn_c.so.0"


def pack_path() -> pathlib.Path:
    """Where the pack of ready kernels is looked for."""
    return library_path().parent / PACK_NAME


def device_name(kind: int, number: int) -> str:
    """The name that Context takes."""
    return "cpu" if kind == native.ATTN_DEVICE_CPU else f"cuda:{number}"


def amx(context: Context) -> str:
    """Whether attention uses the AMX tiles of the processor: "usable", or why not."""
    rows = np.zeros((1, 1, 32, 8), np.float32)
    op = context.op("ai.onnx", "Attention", 24)
    with op.bind(None, {"Q": rows, "K": rows, "V": rows}, {"Y": np.empty_like(rows)}) as binding:
        binding.prepare()
        for stage in binding.describe()["stages"]:
            for verdict in stage["considered"]:
                if verdict["engine"] == "amx-prefill":
                    return "usable" if verdict["supported"] else str(verdict["reason"])
    return "no engine of this library uses it"


def machine(context: Context) -> dict[str, int]:
    """Caches and processors as a context of the CPU sees them: a plan's description has them."""
    rows = np.zeros((1, 1, 1, 4), np.float32)
    op = context.op("", "Attention", version=23)
    binding = op.bind(context.session(), {"Q": rows, "K": rows, "V": rows},
                      {"Y": np.zeros_like(rows)})
    binding.prepare()
    return dict(binding.describe()["device"]["machine"])


def describe() -> dict[str, Any]:
    """Versions, files and devices; of those that can be used, what a context says of itself."""
    found: list[dict[str, Any]] = []
    for device in devices():
        entry: dict[str, Any] = {"device": device_name(device.device_type, device.device_id),
                                 **device._asdict()}
        if device.available:
            try:
                context = Context(entry["device"])
                entry["context"] = context.info._asdict()
                if device.device_type == native.ATTN_DEVICE_CPU:
                    entry["context"]["amx"] = amx(context)
                    entry["machine"] = machine(context)
            except Error as error:
                entry["reason"] = str(error)
        found.append(entry)
    pack = pack_path()
    return {
        "version": version(), "abi_version": abi_version(), "library": str(library_path()),
        "kernel_pack": str(pack) if pack.exists() else "",
        "python": platform.python_version(), "numpy": np.__version__,
        "package": str(pathlib.Path(__file__).parent),
        "operators": [f"{one.domain or 'ai.onnx'}::{one.type}" for one in operators()],
        "devices": found}


def info(arguments: argparse.Namespace) -> int:
    """The command `info`."""
    known = describe()
    if arguments.json:
        _report.as_json(known)
        return 0
    rows = [(key, known[key]) for key in ("version", "library", "python", "numpy")]
    rows.insert(1, ("ABI", f"{known['abi_version'] >> 16}.{known['abi_version'] & 0xffff}"))
    rows.append(("kernel pack", known["kernel_pack"] or "none"))
    _report.table("attn_c", ("what", "found"), rows, ("what", "found"))
    for device in known["devices"]:
        context = device.get("context", {})
        shown = [("name", device["name"]), ("usable", "yes" if context else "no")]
        if not context:
            shown.append(("reason", device["reason"]))
        for key, value in context.items():
            if value not in ("", ()) and not key.startswith("device"):
                shown.append((key.replace("_", " "),
                              ", ".join(value) if isinstance(value, tuple) else value))
        shown += [(key.replace("_", " "), value)
                  for key, value in device.get("machine", {}).items()]
        _report.table(device["device"], ("what", "found"), shown, ("what", "found"))
    return 0


def _versions(one: OperatorInfo) -> str:
    if one.version_first == one.version_last:
        return str(one.version_first)
    return f"{one.version_first} to {one.version_last}"


def list_operators(arguments: argparse.Namespace) -> int:
    """The command `list`: all operators, or everything about those of a name."""
    chosen = [one for one in operators() if arguments.operator in (None, one.type)]
    if not chosen:
        known = ", ".join(dict.fromkeys(one.type for one in operators()))
        print(f"list: there is no operator {arguments.operator}; there are {known}",
              file=sys.stderr)
        return 2
    if arguments.json:
        _report.as_json([_tree(one) for one in chosen])
        return 0
    if arguments.operator is None:
        _report.table("operators", ("operator", "domain", "versions", "summary"),
                      [(one.type, one.domain or "ai.onnx", _versions(one), one.summary)
                       for one in chosen], ("operator", "domain", "versions", "summary"))
        return 0
    for one in chosen:
        title = f"{one.domain or 'ai.onnx'}::{one.type}, version {_versions(one)}: {one.summary}"
        rows = [(kind, slot.name, ", ".join(slot.types), slot.shape,
                 "optional" if slot.optional else "required")
                for kind, slots in (("input", one.inputs), ("output", one.outputs))
                for slot in slots]
        rows += [("attribute", each.name, each.type, each.summary,
                  "required" if each.required else f"default {each.default}")
                 for each in one.attributes]
        heads = ("kind", "name", "type", "shape or meaning", "need")
        _report.table(title, heads, rows, heads)
    return 0


def _tree(one: OperatorInfo) -> dict[str, Any]:
    plain = one._asdict()
    for key in ("inputs", "outputs", "attributes"):
        plain[key] = [each._asdict() for each in plain[key]]
    return plain
