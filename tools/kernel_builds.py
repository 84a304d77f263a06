"""Compiles kernel variants without a GPU: finds NVRTC, runs `kernel_variants`, reads its words."""

import dataclasses
import os
import re
import subprocess
import sysconfig
import threading
from pathlib import Path

TARGETS = ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a"]
# Inside site-packages; 13 makes the resource table, 12 the pack.
WHEELS = {13: "nvidia/cu13/lib/libnvrtc.so.13", 12: "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"}

# ptxas lays a function's properties over two lines, the second with other words in front.
ENTRY = re.compile(r"Function properties for (\w+)")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
# A remark that no option turns into an error: matrix instructions that are serialised, register
# hand-overs that are ignored. C7519 is none: NVRTC 12 puts one fence of its own beside ours.
TROUBLE = re.compile(r".*(?:Potential Performance Loss|C75(?!19)\d\d|setmaxnreg ignored).*")


@dataclasses.dataclass
class Variant:
    """A line of `kernel_variants list`, and what its compile gave."""

    line: str
    target: str
    key: str
    engine: str
    purpose: str
    source: str
    entry: str
    threads: int
    shared: int
    limit: int
    definitions: str
    cubin: bytes = b""
    log: str = ""

    def name(self):
        return f"{self.target} {self.engine} {self.purpose}"


@dataclasses.dataclass
class Resources:
    """What ptxas says of one entry."""

    registers: int = 0
    stack: int = 0
    spilled: int = 0
    static_shared: int = 0


def find_nvrtc(major):
    """The library of the wheel in this Python's site-packages; None where it is not installed."""
    path = Path(sysconfig.get_path("purelib")) / WHEELS[major]
    return path if path.exists() else None


def spill_allowances(*files):
    """The reviewed spills: a function from a variant to the bytes that it may spill."""
    rules = []
    for file in files:
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            if line.strip() and not line.startswith("#"):
                pattern, allowed, reason = (part.strip() for part in line.split("|"))
                if not reason:
                    raise ValueError(f"{file}: a spill without a reason: {line}")
                rules.append((re.compile(pattern), int(allowed)))

    def allowed_for(variant):
        name = variant.name()
        return max((most for pattern, most in rules if pattern.fullmatch(name)), default=0)

    return allowed_for


def list_variants(tool, file, chosen, targets):
    text = subprocess.run([tool, "list", file, chosen, *targets], text=True, check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    variants = []
    for line in text.splitlines():
        fields = line.split("\t")
        variants.append(Variant(line, *fields[:6], *map(int, fields[6:9]), fields[9]))
    return variants


def compile_variants(tool, nvrtc, variants, folder, workers=2, lines=True):
    """Compiles all, each worker a process that takes one after the other; fills cubin and log."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    waiting = list(enumerate(variants))
    waiting.reverse()
    lock = threading.Lock()
    broken = []

    def work():
        command = [str(tool), "compile-with-lines" if lines else "compile", str(nvrtc), str(folder)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True, env={**os.environ, "TMPDIR": str(folder)}) as process:
            while True:
                with lock:
                    if not waiting or broken:
                        break
                    number, variant = waiting.pop()
                process.stdin.write(f"{number}\t{variant.line}\n")
                process.stdin.flush()
                if not process.stdout.readline().startswith(f"{number} "):
                    broken.append(variant.name())
                    break
                variant.cubin = (folder / f"{number}.cubin").read_bytes()
                variant.log = (folder / f"{number}.log").read_text(encoding="utf-8")
            process.stdin.close()

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if broken:
        raise RuntimeError(f"kernel_variants ended while it compiled {broken[0]}")


def resources_of(log):
    """The resources of every entry in a compiler's log, by name."""
    found, entry = {}, None
    for line in log.splitlines():
        if match := ENTRY.search(line):
            entry = found.setdefault(match[1], Resources())
        if entry is None:
            continue
        if match := SPILLS.search(line):
            entry.stack, entry.spilled = int(match[1]), int(match[2]) + int(match[3])
        if match := USED.search(line):
            entry.registers = int(match[1])
            if match := SHARED.search(line):
                entry.static_shared = int(match[1])
    return found


def faults_of(variant, allowed_spills=0):
    """What must not be in a compiled variant, in words."""
    if not variant.cubin:
        return ["does not compile:\n" + variant.log.rstrip()]
    faults = [line.strip() for line in variant.log.splitlines() if TROUBLE.match(line)]
    entries = resources_of(variant.log)
    if variant.entry not in entries:
        return [*faults, f"the compiler says nothing of {variant.entry}:\n{variant.log.rstrip()}"]
    for name, used in entries.items():
        if used.spilled > allowed_spills:
            more = f", {allowed_spills} are allowed" if allowed_spills else ""
            faults.append(f"{name} spills {used.spilled} bytes of registers{more}")
    used = entries[variant.entry]
    shared = used.static_shared + variant.shared
    if shared > variant.limit:
        faults.append(f"needs {shared} bytes of shared memory; {variant.target} has "
                      f"{variant.limit}")
    # A warp's registers come in units of 256.
    if (used.registers + 7) // 8 * 8 * variant.threads > 65536:
        faults.append(f"{variant.threads} threads of {used.registers} registers cannot be launched")
    return faults
