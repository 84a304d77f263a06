"""The machine that numbers belong to."""

import os
import platform


def _first_line(path, key):
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.startswith(key):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return ""


def describe(context_info, versions):
    """Processor, memory, system, what the library chose, and versions of everything."""
    return {
        "processor": _first_line("/proc/cpuinfo", "model name") or platform.processor(),
        "processors": len(os.sched_getaffinity(0)),
        "memory": _first_line("/proc/meminfo", "MemTotal"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load": os.getloadavg()[0],
        "device": context_info.device_name,
        "simd_level": context_info.simd_level,
        "thread_count": context_info.thread_count,
        "versions": {"python": platform.python_version(), **versions}}


def lines(machine):
    """The same for people."""
    versions = ", ".join(f"{name} {value}" for name, value in machine["versions"].items())
    return [f"{machine['processor']}, {machine['processors']} processors, {machine['memory']}, "
            f"{machine['system']}",
            f"SIMD level {machine['simd_level']}, {machine['thread_count']} threads; {versions}; "
            f"load average at the start {machine['load']:.1f}; clock: {machine['clock']}"]
