"""The commands of the repository; `./dev help` lists them."""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import dev_lint
import dev_setup
from dev_build import BuildError, build, build_aloud, jobs, presets
from dev_gpu import SANITIZER_TOOLS, gpu_bench, gpu_test
from dev_setup import BUILD, ROOT, VENV, SetupError, environment, say
from dev_test import labels, test
from dev_wheel import wheel

PYTHON = VENV / "bin" / "python"


def call(command, preset="release", **extra):
    """Runs a program in the project's environment; its exit code."""
    return subprocess.call([str(part) for part in command], cwd=ROOT,
                           env={**environment(preset), **extra})


def command_build(options):
    dev_setup.set_up()
    build_aloud(options.preset)
    return 0


def command_test(options):
    return test(dev_setup.set_up_tests, options.preset, options.only)


def command_demo(options):
    dev_setup.set_up()
    build("release", ["attn_c", "attn_c_python", "decode_loop"])
    code = call([BUILD / "release" / "bin" / "decode_loop",
                 "--library", BUILD / "release" / "lib" / "libattn_c.so",
                 "--data", "tests/data/smollm2", *options.arguments])
    code = code or ask_a_model("Why is the sky blue?")
    print(f"demo: {'FAILED' if code else 'OK'}")
    return code


def ask_a_model(question):
    """SmolLM2 answers, where its weights are here or can be had; 0 where they cannot."""
    say(f"asking SmolLM2, whose attention is this library's: {question}")
    try:
        dev_setup.install_answering_model()
    except SetupError as error:
        say(f"{error}\nthe weights are not here and cannot be had: there is no answer")
        return 0
    # One thread for numpy and for the attention: numpy's threads wait by spinning, which takes
    # minutes where others use the processors.
    code = call([PYTHON, "examples/python/generate.py", question, "--tokens", "60",
                 "--threads", "1"], OPENBLAS_NUM_THREADS="1")
    print(f"answer: {'FAILED' if code else 'OK'}", flush=True)
    return code


def command_bench(options):
    dev_setup.set_up()
    build("release")
    return call([PYTHON, "tests/bench/run.py", *options.arguments])


def command_gpu_test(options):
    """The tests that need a device; with what the machine has, for it may have no network."""
    return gpu_test(options.filter, options.sanitizer, options.seconds)


def command_gpu_bench(options):
    """Measurements that need a device; with what the machine has, as gpu-test."""
    return gpu_bench(options.arguments)


def command_wheel(options):
    dev_setup.set_up_tests()  # for NVRTC, which makes the pack
    return wheel(options.pack)


def command_nupkg(options):
    """The C# classes and the library as a NuGet package, in build/dist."""
    dev_setup.set_up()
    dev_setup.install_mono()
    if shutil.which("mcs") is None:
        raise SetupError("the C# classes need Mono's compiler: apt-get install mono-mcs")
    build("release", ["attn_c_nupkg"])
    target = BUILD / "dist"
    target.mkdir(exist_ok=True)
    for package in (BUILD / "release" / "nuget").glob("AttnC.*.nupkg"):
        made = Path(shutil.copy(package, target))
        say(f"{made.relative_to(ROOT)}: {made.stat().st_size / 2**20:.1f} MiB")
    return 0


def command_docs(options):
    """The API reference of every language, in build/docs."""
    dev_setup.set_up()
    dev_setup.set_up_bindings()
    targets = ["attn_c", "attn_c_python"]
    build("release", [*targets, "attn_c_assembly"] if shutil.which("mcs") else targets)
    return call([PYTHON, "-B", "tools/make_docs.py", BUILD / "docs",
                 "--build", BUILD / "release"])


def command_fuzz(options):
    dev_setup.set_up_fuzzing()
    build("fuzz")
    more = ["--merge"] if options.merge else []
    return call([PYTHON, "tests/fuzz/run.py", "--build", BUILD / "fuzz",
                 "--seconds", options.seconds, *more], "fuzz")


def command_coverage(options):
    """Line coverage of the C boundary and the operators by the tests."""
    dev_setup.set_up()
    build("coverage")
    tree = BUILD / "coverage"
    subprocess.call(["find", tree, "-name", "*.gcda", "-delete"])
    code = subprocess.call(["ctest", "--test-dir", tree, "-LE", "^(abi|repository)$", "-j", "2",
                            "--output-on-failure"], env=environment("coverage"))
    return code or call([VENV / "bin" / "gcovr", "--root", ROOT, "--filter", "src/api/",
                         "--filter", "src/ops/", "--fail-under-line", options.least, tree])


def command_format(options):
    dev_setup.set_up()
    return dev_lint.format_sources()


def command_lint(options):
    dev_setup.set_up()
    build("release")
    return dev_lint.lint(workers=jobs())


def command_abi_accept(options):
    dev_setup.set_up()
    build("release", ["attn_c"])
    code = call([PYTHON, "tests/abi/check_abi.py", "--library", BUILD / "release/lib/libattn_c.so",
                 "--accept"])
    # Rust's bindings are made from the same headers, where cargo and libclang are there.
    dev_setup.set_up_bindings()
    made = call([PYTHON, "tests/tools/run_cargo.py", "bindings/rust", "run", "-q", "-p", "xtask",
                 "--", "generate"], CARGO_TARGET_DIR=str(BUILD / "release" / "rust"))
    return code or (0 if made == 77 else made)


def command_kernels_accept(options):
    dev_setup.set_up_tests()
    build("release", ["kernel_variants"])
    return call([PYTHON, "tests/kernels/check_kernels.py", "--accept",
                 "--tool", BUILD / "release/bin/kernel_variants"])


def command_run(options):
    if not options.arguments:
        print("usage: ./dev run CMD...", file=sys.stderr)
        return 2
    dev_setup.set_up()
    build("release")
    program = options.arguments[0]
    try:
        os.execvpe(program, options.arguments, environment())
    except OSError as error:
        raise SetupError(f"cannot run {program}: {error.strerror}") from error


# Commands whose arguments are somebody else's: they are handed on as they are.
FORWARDING = {
    "demo": (command_demo, "the attention of a real model, token by token"),
    "bench": (command_bench, "measure: ./dev bench gqa|attention|linear|cpu|host [--peers]"),
    "gpu-bench": (command_gpu_bench, "measure on a GPU: ./dev gpu-bench gqa|host; uses no network"),
    "run": (command_run, "run a command in the project's environment: ./dev run CMD..."),
}


def parser():
    top = argparse.ArgumentParser(prog="./dev", description="The commands of the repository. "
                                  "Each one first installs and builds what it needs.")
    commands = top.add_subparsers(dest="name", required=True, metavar="COMMAND")

    def add(name, action, text):
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(action=action)
        return command

    for name, (action, text) in FORWARDING.items():
        add(name, action, text)
    tests = add("test", command_test, "every test that this machine can run")
    tests.add_argument("--only", metavar="LABEL", choices=labels(),
                       help="the tests with one CTest label: " + ", ".join(labels()))
    tests.add_argument("--preset", metavar="PRESET", choices=presets(),
                       help="the tests of one preset: " + ", ".join(presets()))
    add("build", command_build, "build a preset").add_argument(
        "--preset", metavar="PRESET", choices=presets(), default="release",
        help="release, where none is named, or " + ", ".join(presets()[1:]))
    gpu = add("gpu-test", command_gpu_test, "the tests that need a GPU; uses no network")
    gpu.add_argument("--filter", metavar="PATTERN", help="a pattern of GoogleTest, or: python")
    gpu.add_argument("--sanitizer", nargs="*", choices=SANITIZER_TOOLS, metavar="TOOL",
                     help="a small suite under compute-sanitizer: " + ", ".join(SANITIZER_TOOLS))
    gpu.add_argument("--seconds", type=int, default=1800, help="for each suite or tool (1800)")
    add("wheel", command_wheel, "the Python package as a wheel, in build/dist").add_argument(
        "--pack", action="store_true", help="make the pack of ready kernels first (minutes)")
    add("docs", command_docs, "the API reference of every language, in build/docs")
    add("nupkg", command_nupkg, "the C# classes as a NuGet package, in build/dist")
    fuzz = add("fuzz", command_fuzz, "fuzz the C boundary")
    fuzz.add_argument("seconds", nargs="?", type=int, default=60, help="for each target (60)")
    fuzz.add_argument("--merge", action="store_true", help="then rewrite tests/fuzz/corpus")
    add("coverage", command_coverage, "line coverage of src/api and src/ops").add_argument(
        "--least", type=float, default=85, help="fail below this percentage (85)")
    add("format", command_format, "lay out the sources with clang-format")
    add("lint", command_lint, "check layout, house rules and clang-tidy over all sources")
    add("abi-accept", command_abi_accept, "rewrite abi/ after a deliberate change of the ABI")
    add("kernels-accept", command_kernels_accept,
        "rewrite tests/kernels/resources.txt after a deliberate change of the kernels")
    add("help", lambda options: top.print_help() or 0, "this list")
    return top


def parse(arguments):
    """The command line; what a forwarding command gets is not looked at."""
    if arguments and arguments[0] in FORWARDING:
        action, _ = FORWARDING[arguments[0]]
        return argparse.Namespace(action=action, arguments=arguments[1:])
    return parser().parse_args(arguments)


def main():
    options = parse(sys.argv[1:])
    try:
        return options.action(options)
    except (SetupError, BuildError) as error:
        print(f"dev: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
