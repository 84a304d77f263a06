"""Installs the library into an empty folder, moves it, and uses it from projects of their own.

In C and in C++, through the CMake package AttnC::attn_c, through attn_c.pc, and with dlopen alone.
Moving proves that no path of the build machine is in what was installed. With --pack the build has
kernels: a pack of them is installed beside the library, where there is one. Skips (77) at its end
where pkg-config is not on the machine, and all else was right.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONSUMER = HERE / "consumer"
SKIP = 77


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
    work.mkdir()
    path = str(prefix / libdir / "pkgconfig")
    flags = run("pkg-config", "--cflags", "--libs", "attn_c", PKG_CONFIG_PATH=path).split()
    run(compiler[0], "-std=c99", CONSUMER / "consumer.c", "-o", work / "consumer", *flags)
    run(compiler[1], "-std=c++17", CONSUMER / "consumer.cc", "-o", work / "consumer_cpp", *flags)
    run(work / "consumer", LD_LIBRARY_PATH=str(prefix / libdir))
    run(work / "consumer_cpp", LD_LIBRARY_PATH=str(prefix / libdir))


def install_pack(build, first, work, libdir):
    """The build's own rule for the kernel pack, which takes minutes to make, with another file."""
    name = "attn_c_kernels.pack"
    rule = (build / "tools" / "cmake_install.cmake").read_text(encoding="utf-8")
    made = build / "lib" / name
    if str(made) not in rule:
        sys.exit(f"no rule installs {made}")
    if made.exists() and not (first / libdir / name).exists():
        sys.exit(f"{name} is there and was not installed")
    work.mkdir()
    (work / name).write_bytes(b"a pack")
    (work / "rule.cmake").write_text(rule.replace(str(made), str(work / name)), encoding="utf-8")
    run("cmake", f"-DCMAKE_INSTALL_PREFIX={work / 'prefix'}", "-DCMAKE_INSTALL_COMPONENT=attn_c",
        "-P", work / "rule.cmake")
    if (work / "prefix" / libdir / name).read_bytes() != b"a pack":
        sys.exit(f"{name} was not installed beside the library")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True, help="the build folder to install")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--cxx-compiler", required=True)
    parser.add_argument("--libdir", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--pack", action="store_true", help="the build may have a kernel pack")
    options = parser.parse_args()

    shutil.rmtree(options.work, ignore_errors=True)
    first, prefix = options.work / "first", options.work / "moved"
    run("cmake", "--install", options.build, "--prefix", first, "--component", "attn_c")
    if options.pack:
        install_pack(options.build, first, options.work / "pack", options.libdir)
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
    use_dlopen(prefix, options.work / "dlopen", compilers, options.libdir)
    if shutil.which("pkg-config") is None:
        print("skipped: pkg-config is not there: attn_c.pc was not tried, all else is right")
        return SKIP
    use_pkg_config(prefix, options.work / "pkg-config", compilers, options.libdir)
    return 0


if __name__ == "__main__":
    sys.exit(main())
