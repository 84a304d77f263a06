"""Suite `host` on a GPU: what a call, a first result and opening the library cost the host.

A prepared execute is held against as many launches of an empty kernel made directly; the row says
what the library adds. A first result comes from a fresh process, whose clock starts when the driver
is up and the library is open.
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

COLUMNS = ("case", "ours", "limit", "of limit", "detail")

EXECUTE_LIMIT_US, PYTHON_LIMIT_US = 2.0, 6.0
LOAD_LIMIT_MS, SIZE_LIMIT_MB = 5.0, 15.0
FIRST_LIMITS_MS = {"pack": 100.0, "NVRTC": 1500.0, "disk cache": 30.0}
PACK = "attn_c_kernels.pack"

# The steps whose first result is timed: (type, head size, rotary).
FIRST_STEPS = [("bfloat16", 128, 1), ("bfloat16", 256, 1), ("float16", 64, 0), ("float32", 128, 1)]


def row_of(case, unit, ours, limit, failures=None, **facts):
    """A row with a bar; ours is None where a failure says why."""
    return {"case": case, "metric": "time" if unit != "MB" else "size", "unit": unit, "ours": ours,
            "peers": {}, "limit": limit, "bar": True, "failures": failures or {}, **facts}


def cells_of(row, detail=""):
    """What the table shows of a row."""
    ours, limit = row["ours"], row["limit"]
    return (row["case"], "-" if ours is None else f"{ours:.3f} {row['unit']}",
            f"{limit:g} {row['unit']}", "-" if ours is None else f"{ours / limit:.2f}", detail)


class ProgramFailed(Exception):
    """gpu_host ended with an error; the text is what it said."""


def call_program(program, mode, library, environment=None, **options):
    """The JSON object that gpu_host prints."""
    command = [str(program), mode, "--library", str(library)]
    for name, value in options.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment, timeout=120, check=False)
    if done.returncode != 0:
        raise ProgramFailed((done.stderr.strip() or f"ended with code {done.returncode}")[:400])
    return json.loads(done.stdout)


def execute_rows(program, options, environment):
    """What an execute costs beyond the launches that it consists of; and the bare launches."""
    step = {"rounds": 21 if options.quick else 101}
    facts = call_program(program, "execute", options.library, environment, **step)
    empty, same = facts["empty_kernels_ns"] / 1e3, facts["same_kernels_ns"] / 1e3
    rows, details = [], []
    for name in ("binding", "plan"):
        whole = facts[f"{name}_ns"] / 1e3
        rows.append(row_of(f"{name}_execute over bare launches", "us", whole - empty,
                           EXECUTE_LIMIT_US, whole_us=whole, launches=facts["launches"],
                           empty_kernels_us=empty, same_kernels_us=same))
        details.append(f"{whole:.2f} us in all, {facts['launches']} launches; bare: {empty:.2f} us "
                       f"of empty kernels, {same:.2f} us of the same kernels")
    return list(zip(rows, details)), empty


def python_row(attn_c, options, empty_us):
    """A binding's execute from Python over the bare launches."""
    import torch
    device = options.device

    def zeros(*shape):
        return torch.zeros(*shape, dtype=torch.bfloat16, device=device)

    heads, kv_heads, size, capacity, total = 32, 8, 128, 1024, 512
    caches = [zeros(1, kv_heads, capacity, size) for _ in range(2)]
    op = attn_c.Context(device).op("com.microsoft", "GroupQueryAttention", num_heads=heads,
                                   kv_num_heads=kv_heads, do_rotary=1)
    binding = op.bind(None, {
        "query": zeros(1, 1, heads * size), "key": zeros(1, 1, kv_heads * size),
        "value": zeros(1, 1, kv_heads * size), "past_key": caches[0], "past_value": caches[1],
        "seqlens_k": torch.full((1,), total - 1, dtype=torch.int32, device=device),
        "total_sequence_length": torch.full((1,), total, dtype=torch.int32, device=device),
        "cos_cache": zeros(capacity, size // 2), "sin_cache": zeros(capacity, size // 2)},
        {"output": zeros(1, 1, heads * size), "present_key": caches[0],
         "present_value": caches[1]})
    binding.prepare()
    stream = torch.cuda.Stream(device)
    execute, handle = binding.execute, stream.cuda_stream
    times = []
    for _ in range(21 if options.quick else 101):
        begin = time.perf_counter()
        for _ in range(100):
            execute(stream=handle)
        times.append((time.perf_counter() - begin) / 100 * 1e6)
        stream.synchronize()
    whole = statistics.median(times[1:])
    row = row_of("Binding.execute in Python over bare launches", "us", whole - empty_us,
                 PYTHON_LIMIT_US, whole_us=whole)
    return row, f"{whole:.2f} us in all"


def _expect(origin, facts):
    """Raises where the kernels did not come from where they should have."""
    found = ("NVRTC" if facts["compiles"] else "disk cache" if facts["disk_hits"] else "pack")
    if found != origin:
        raise ProgramFailed(f"the kernels came from: {found} ({facts['compiles']} compiled, "
                            f"{facts['disk_hits']} from the disk cache)")


def first_row(program, options, environment, folder, origin, step):
    """Milliseconds until a fresh process has its first result with kernels from one origin."""
    kind, head_size, rotary = step
    name = f"first result, {origin}, {kind} D{head_size}{' rotary' if rotary else ''}"
    library = options.library
    arguments = {"type": kind, "head_size": head_size, "rotary": rotary}
    try:
        if origin == "pack":
            if not (library.parent / PACK).is_file():
                raise ProgramFailed(f"{PACK} is not there: build the target attn_c_kernel_pack")
            arguments["no_disk_cache"] = 1
        else:  # a library without a pack beside it
            library = folder / library.name
        runs, repetitions = [], 2 if origin == "NVRTC" or options.quick else 5
        for repetition in range(repetitions):
            if origin == "NVRTC":
                cache = tempfile.mkdtemp(dir=folder)
            else:
                cache = folder / f"cache-{kind}-{head_size}"
                if origin == "disk cache" and repetition == 0:
                    cache.mkdir(mode=0o700, exist_ok=True)
                    call_program(program, "first", library,
                                 {**environment, "ATTN_C_CACHE_FOLDER": str(cache)}, **arguments)
            facts = call_program(program, "first", library,
                                 {**environment, "ATTN_C_CACHE_FOLDER": str(cache)}, **arguments)
            _expect(origin, facts)
            runs.append(facts)
        times = [facts["seconds"] * 1e3 for facts in runs]
        steps = ", ".join(f"{step} {statistics.median(facts[step] * 1e3 for facts in runs):.1f}"
                          for step in ("context", "session", "prepare"))
        return (row_of(name, "ms", statistics.median(times), FIRST_LIMITS_MS[origin], runs=runs),
                f"{min(times):.1f} to {max(times):.1f} ms; {steps}; {runs[0]['compiles']} compiled")
    except (ProgramFailed, subprocess.TimeoutExpired) as error:
        return row_of(name, "ms", None, FIRST_LIMITS_MS[origin], {"ours": str(error)}), ""


def load_rows(program, options, environment):
    """Opening the library in fresh processes, and its size."""
    times = [call_program(program, "load", options.library, environment)["seconds"] * 1e3
             for _ in range(5 if options.quick else 21)]
    size = options.library.stat().st_size / 1e6
    return [(row_of("opening the library", "ms", statistics.median(times), LOAD_LIMIT_MS),
             f"{min(times):.2f} to {max(times):.2f} ms"),
            (row_of("size of the library", "MB", size, SIZE_LIMIT_MB), "")]


def _guarded(case, unit, limit, measure):
    try:
        return measure()
    except Exception as error:  # the other rows go on
        text = f"{type(error).__name__}: {error}"[:400]
        return [(row_of(case, unit, None, limit, {"ours": text}), "")]


def run(attn_c, options, emit):
    """`emit` gets each row and its cells as soon as they are measured."""
    program = options.build / "bin" / "gpu_host"
    if not program.is_file():
        raise SystemExit(f"{program} is not there: build the target gpu_host")
    environment = dict(os.environ)
    bare_us = []

    def add(pairs):
        for row, detail in pairs:
            if not options.filter or options.filter in row["case"]:
                emit(row, cells_of(row, detail))

    def executes():
        pairs, empty = execute_rows(program, options, environment)
        bare_us.append(empty)
        return pairs

    add(_guarded("opening the library", "ms", LOAD_LIMIT_MS,
                 lambda: load_rows(program, options, environment)))
    add(_guarded("execute over bare launches", "us", EXECUTE_LIMIT_US, executes))
    if bare_us:
        add(_guarded("Binding.execute in Python over bare launches", "us", PYTHON_LIMIT_US,
                     lambda: [python_row(attn_c, options, bare_us[0])]))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copy(options.library, folder / options.library.name)
        for step in FIRST_STEPS[:1] if options.quick else FIRST_STEPS:
            for origin in FIRST_LIMITS_MS:
                add([first_row(program, options, environment, folder, origin, step)])


def versions(options):
    """There are no peers."""
    return {}
