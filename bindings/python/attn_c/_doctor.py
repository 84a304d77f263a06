"""The command `doctor`: what keeps the plugin, or a GPU, from being used, and how to mend it."""

import argparse
import ctypes.util
import importlib.util
import os
import pathlib
import stat
from typing import Any, Iterator, NamedTuple, Optional

from . import _info, _loading, _report, native
from ._context import Context
from ._introspection import DeviceInfo, devices, version
from .errors import Error

_GOOD, _NOTE, _BAD = "ok", "note", "problem"
_DRIVER_FILE = pathlib.Path("/proc/driver/nvidia/version")
_PCI = pathlib.Path("/sys/bus/pci/devices")
_NVIDIA_VENDOR = "0x10de"
# What docs/environment.md lists, and the package's own ATTN_C_LIBRARY, at which `_library` looks.
_FILES = ("ATTN_C_DRIVER_PATH", "ATTN_C_NVRTC_PATH")  # name a file
_VARIABLES = (*_FILES, "ATTN_C_CACHE_FOLDER", "ATTN_C_CACHE_OFF", "ATTN_C_ENGINE",
              "ATTN_C_LIBRARY", "ATTN_C_LOG_LEVEL", "ATTN_C_SIMD_LEVEL", "ATTN_C_THREAD_COUNT")


class Finding(NamedTuple):
    """One thing that was looked at. state: ok, note (nothing is wrong, but it is well to know) or
    problem; `mend` says what to do."""

    what: str
    state: str
    found: str
    mend: str = ""


def _library() -> Finding:
    path = _info.library_path()
    if _loading.PROBLEM:
        return Finding("library", _BAD, f"{_loading.PROBLEM}; {path} is used here instead",
                       "unset ATTN_C_LIBRARY, or name a libattn_c.so in it")
    wanted = os.environ.get("ATTN_C_LIBRARY")
    if wanted and not os.path.samefile(wanted, path):
        return Finding("library", _BAD, f"ATTN_C_LIBRARY is {wanted}, and {path} is used: the "
                       "file calls itself by another name", "unset ATTN_C_LIBRARY, or name a "
                       "libattn_c.so in it that was built as one")
    if version() != native.ATTN_VERSION_STRING:
        return Finding("library", _BAD, f"{path} is version {version()}, the Python module is of "
                       f"{native.ATTN_VERSION_STRING}",
                       "install the wheel again; unset ATTN_C_LIBRARY if it is set")
    return Finding("library", _GOOD, f"{path}, version {version()}")


def _environment() -> Finding:
    names = sorted(name for name in os.environ if name.startswith("ATTN_C_"))
    if not names:
        return Finding("environment", _GOOD, "no ATTN_C_ variable is set")
    shown = ", ".join(f"{name}={os.environ[name]}" for name in names)
    missing = [name for name in _FILES
               if "/" in os.environ.get(name, "") and not os.path.exists(os.environ[name])]
    if missing:
        return Finding("environment", _BAD, f"{shown}; there is no such file in "
                       + " and ".join(missing), "unset " + ", ".join(missing)
                       + ", or name a file that is there")
    unknown = [name for name in names if name not in _VARIABLES]
    if unknown:
        shown += "; the library knows no " + ", no ".join(unknown)
    return Finding("environment", _NOTE, shown,
                   "these change what is chosen: docs/environment.md; unset what was not meant")


def _cpu() -> Finding:
    try:
        info = Context("cpu").info
    except Error as error:
        return Finding("CPU", _BAD, str(error))
    text = f"{info.device_name}, {info.simd_level}, {info.thread_count} threads"
    if info.simd_level == "generic":
        return Finding("CPU", _NOTE, text, "without SIMD everything is slow: unset "
                       "ATTN_C_SIMD_LEVEL, or use a processor with SSE4.2 or NEON")
    return Finding("CPU", _GOOD, text)


def _gpu_on_the_bus() -> bool:
    for device in _PCI.glob("*"):
        try:
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == _NVIDIA_VENDOR and kind.startswith("0x03"):
            return True
    return False


def _driver_of_the_machine() -> tuple[bool, Finding]:
    """Whether a GPU ought to work here, and what the system says of its driver."""
    if _DRIVER_FILE.exists():
        line = _DRIVER_FILE.read_text(errors="replace").splitlines()[0]
        return True, Finding("NVIDIA driver", _GOOD, line)
    nodes = list(pathlib.Path("/dev").glob("nvidia[0-9]*"))
    if nodes or ctypes.util.find_library("cuda"):
        return True, Finding("NVIDIA driver", _NOTE, "libcuda or device files are here, the "
                             "kernel's module does not show itself",
                             "in a container that is usual; on a machine of its own: "
                             "modprobe nvidia")
    if _gpu_on_the_bus():
        return True, Finding("NVIDIA driver", _BAD, "a GPU is on the bus, and no driver is loaded",
                             "install NVIDIA's driver, 525.60 or newer, and restart")
    return False, Finding("NVIDIA driver", _NOTE, "no GPU and no driver are here",
                          "nothing to mend without a GPU; in a container, start it with the GPU "
                          "(docker run --gpus all)")


def _mend_of(device: DeviceInfo) -> str:
    """What to do about a device's reason, by the words of docs/cuda.md."""
    reason = device.reason
    for words, mend in (
            ("could be opened", "the driver's libcuda.so.1 is not where it is looked for: start "
             "the container with the GPU (docker run --gpus all), or install NVIDIA's driver; "
             "ATTN_C_DRIVER_PATH names another place"),
            ("update the NVIDIA driver", "update NVIDIA's driver to 525.60 or newer"),
            ("needs sm_80", "this GPU is too old: one of compute capability 8.0 (Ampere) "
             "or later is needed"),
            ("forked", "use CUDA only after the fork: multiprocessing's start method 'spawn'"),
            ("no CUDA device", "the driver sees no device: check CUDA_VISIBLE_DEVICES and "
             "nvidia-smi"),
            ("has no CUDA back end", "this build has no CUDA: install the wheel, or configure with "
             "ATTN_C_BUILD_CUDA=ON")):
        if words in reason:
            return mend
    return "see docs/cuda.md, \"What goes wrong\""


def _cuda_devices(expected: bool) -> Iterator[Finding]:
    for device in devices():
        if device.device_type != native.ATTN_DEVICE_CUDA:
            continue
        name = f"cuda:{device.device_id}"
        if not device.available:
            yield Finding(name, _BAD if expected else _NOTE, device.reason, _mend_of(device))
            continue
        try:
            info = Context(name).info
        except Error as error:
            yield Finding(name, _BAD, str(error), "see docs/cuda.md, \"What goes wrong\"")
            continue
        yield Finding(name, _GOOD, f"{info.device_name}, {info.architecture}, driver for CUDA "
                      f"{info.driver_version}")
        yield _compiler(info.nvrtc_path, info.nvrtc_version)
        yield _cache(info.cache_folder)


def _compiler(path: str, number: str) -> Finding:
    if path:
        return Finding("kernel compiler", _GOOD, f"NVRTC {number}, {path}")
    state = _NOTE if _info.pack_path().exists() else _BAD
    return Finding("kernel compiler", state, "no NVRTC is found; only kernels of the pack can run",
                   "pip install nvidia-cuda-nvrtc-cu12 (for drivers of CUDA 12 and later)")


def _pack() -> Finding:
    path = _info.pack_path()
    if path.exists():
        return Finding("kernel pack", _GOOD, f"{path}, {path.stat().st_size / 2**20:.1f} MiB")
    return Finding("kernel pack", _NOTE, f"none at {path}", "the first call of each kind compiles "
                   "its kernels; a wheel made by ./dev wheel --pack has them ready")


def _cache(folder: str) -> Finding:
    if not folder:
        return Finding("kernel cache", _NOTE, "off", "set HOME, XDG_CACHE_HOME or "
                       "ATTN_C_CACHE_FOLDER so that compiled kernels are kept")
    path = pathlib.Path(folder)
    if not path.exists():
        return Finding("kernel cache", _GOOD, f"{folder}, made at the first use")
    state = path.lstat()
    if stat.S_ISLNK(state.st_mode) or state.st_uid != os.geteuid() or state.st_mode & 0o022:
        return Finding("kernel cache", _BAD, f"{folder} is a link, belongs to somebody else, or "
                       "others may write to it, so it is not used",
                       f"remove it, or: chown {os.geteuid()} {folder}; chmod 700 {folder}")
    if not os.access(path, os.W_OK):
        return Finding("kernel cache", _NOTE, f"{folder} cannot be written to",
                       f"chmod u+w {folder}")
    return Finding("kernel cache", _GOOD, folder)


def _packages() -> Finding:
    optional = ("ml_dtypes", "onnx", "onnxruntime", "rich", "matplotlib", "torch", "cupy", "jax")
    there = [name for name in optional if importlib.util.find_spec(name) is not None]
    absent = [name for name in optional[:5] if name not in there]
    found = f"numpy, {', '.join(there)}" if there else "numpy alone"
    if not absent:
        return Finding("packages", _GOOD, found)
    return Finding("packages", _NOTE, f"{found}; not here: {', '.join(absent)}",
                   "none is needed to run; pip install 'attn_c[cli,test]' brings them")


def examine(device: Optional[str] = None) -> list[Finding]:
    """Everything that is looked at; with `device` "cuda", a GPU that cannot be used is a problem
    even where none seems to be there."""
    expected, driver = _driver_of_the_machine()
    if device == "cuda" and driver.state == _NOTE and not expected:
        driver = driver._replace(state=_BAD)
    return [_library(), _environment(), _cpu(), driver,
            *_cuda_devices(expected or device == "cuda"), _pack(), _packages()]


def main(arguments: argparse.Namespace) -> int:
    """The command `doctor`; 1 where there is a problem."""
    findings = examine(arguments.device)
    problems = [one for one in findings if one.state == _BAD]
    if arguments.json:
        result: dict[str, Any] = {"problems": len(problems),
                                  "findings": [one._asdict() for one in findings]}
        _report.as_json(result)
    else:
        heads = ("what", "state", "found", "what to do")
        _report.table("attn_c doctor", heads, findings, heads)
        print("nothing is wrong" if not problems else f"{len(problems)} to mend: "
              + ", ".join(one.what for one in problems))
    return 1 if problems else 0
