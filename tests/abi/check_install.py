"""Installs the library into an empty folder, moves it, and uses it from projects of their own.

In C and in C++, through the CMake package AttnC::attn_c, through attn_c.pc, and with dlopen alone.
Moving proves that no path of the build machine is in what was installed.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONSUMER = HERE / "consumer"


def run(*command, **environment):
    """Runs a command, with more environment; its output is shown only if it fails."""
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env={**os.environ, **environment}, check=False)
    if done.returncode != 0:
        print(done.stdout)
        sys.exit(f"failed ({done.returncode}): {' '.join(map(str, command))}")
    return done.stdout


def use_cmake_package(prefix, work, compiler):
    """As a project finds it: an exact version, languages of its own, no flag of ours."""
    run("cmake", "-S", CONSUMER, "-B", work, f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DCMAKE_C_COMPILER={compiler[0]}", f"-DCMAKE_CXX_COMPILER={compiler[1]}")
    run("cmake", "--build", work)
    run(work / "consumer")
    run(work / "consumer_cpp")


def use_dlopen(prefix, work, compiler, libdir):
    """Nothing but the header and the library's path."""
    work.mkdir()
    run(compiler[0], "-std=c99", "-D_POSIX_C_SOURCE=200809L", CONSUMER / "dlopen_consumer.c",
        "-o", work / "consumer", "-I", prefix / "include", "-ldl")
    run(work / "consumer", prefix / libdir / "libattn_c.so")


def use_pkg_config(prefix, work, compiler, libdir):
    if shutil.which("pkg-config") is None:
        print("pkg-config is not there: attn_c.pc was not tried")
        return
    work.mkdir()
    path = str(prefix / libdir / "pkgconfig")
    flags = run("pkg-config", "--cflags", "--libs", "attn_c", PKG_CONFIG_PATH=path).split()
    run(compiler[0], "-std=c99", CONSUMER / "consumer.c", "-o", work / "consumer", *flags)
    run(compiler[1], "-std=c++17", CONSUMER / "consumer.cc", "-o", work / "consumer_cpp", *flags)
    run(work / "consumer", LD_LIBRARY_PATH=str(prefix / libdir))
    run(work / "consumer_cpp", LD_LIBRARY_PATH=str(prefix / libdir))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True, help="the build folder to install")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--cxx-compiler", required=True)
    parser.add_argument("--libdir", required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()

    shutil.rmtree(options.work, ignore_errors=True)
    first, prefix = options.work / "first", options.work / "moved"
    run("cmake", "--install", options.build, "--prefix", first, "--component", "attn_c")
    first.rename(prefix)

    installed = sorted(str(path.relative_to(prefix)) for path in prefix.rglob("*")
                       if path.is_file() or path.is_symlink())
    print("\n".join(installed))
    for path in prefix.rglob("*"):
        if path.is_file() and str(options.build).encode() in path.read_bytes():
            sys.exit(f"{path.name} names the build folder")
    for name in ("LICENSE", "THIRD_PARTY_NOTICES.md"):
        if not list(prefix.rglob(name)):
            sys.exit(f"{name} was not installed")
    compilers = options.compiler, options.cxx_compiler
    use_cmake_package(prefix, options.work / "cmake", compilers)
    use_pkg_config(prefix, options.work / "pkg-config", compilers, options.libdir)
    use_dlopen(prefix, options.work / "dlopen", compilers, options.libdir)
    return 0


if __name__ == "__main__":
    sys.exit(main())
