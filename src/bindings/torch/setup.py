"""pip install . , or python -m build: gannet_torch.data and convert, which find libgannet (pkg-config) when they run, and, where PyTorch is installed
at the time, the backend of torch.distributed against it: pip install --no-build-isolation . , python -m build --wheel --no-isolation .

GANNET_CARRY=1 puts a copy of libgannet.so.0 into the package, for machines that have the libraries that it needs and no gannet.
"""
import os
import shlex
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70
    from wheel.bdist_wheel import bdist_wheel


def flags(*what):
    """What pkg-config says of libgannet, also of one that belongs to the gannet in PATH."""
    environment, program = dict(os.environ), shutil.which("gannet")
    if program:
        beside = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(program))), "lib", "pkgconfig")
        environment["PKG_CONFIG_PATH"] = ":".join(filter(None, [os.environ.get("PKG_CONFIG_PATH"), beside]))
    try:
        done = subprocess.run(["pkg-config", *what, "libgannet"], env=environment, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit("gannet_torch is built with pkg-config: install that")
    except subprocess.CalledProcessError as e:
        sys.exit(f"{e.stderr.strip()}\ngannet_torch needs libgannet: after make install, have gannet in PATH or its lib/pkgconfig in PKG_CONFIG_PATH")
    return shlex.split(done.stdout)


carries = os.environ.get("GANNET_CARRY") == "1"
libraries = [os.path.normpath(f[2:]) for f in flags("--libs-only-L")]
folder = os.path.normpath(flags("--variable=libdir")[0])


class build_with_library(build_py):
    """Notes where libgannet is, or puts it in."""

    def run(self):
        super().run()
        package = os.path.join(self.build_lib, "gannet_torch")
        with open(os.path.join(package, "_built.py"), "w") as f:
            f.write(f"library_folder = {folder!r}\n")
        if carries:
            shutil.copy(os.path.join(folder, "libgannet.so.0"), package)


class wheel_of_platform(bdist_wheel):
    """A wheel that carries libgannet is for any Python of this platform."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = self.root_is_pure and not carries

    def get_tag(self):
        python, abi, platform = super().get_tag()
        return (python, abi, platform) if extensions or not carries else ("py3", "none", platform)


commands, extensions = {"build_py": build_with_library, "bdist_wheel": wheel_of_platform}, []
try:
    from torch.utils.cpp_extension import BuildExtension, CppExtension

    commands["build_ext"] = BuildExtension
    extensions = [
        CppExtension(
            "gannet_torch._C",
            ["csrc/backend.cpp", "csrc/callbacks.cpp", "csrc/engine.cpp", "csrc/module.cpp", "csrc/moves.cpp", "csrc/reduce.cpp",
             "csrc/staging.cpp"],
            extra_compile_args=["-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-fvisibility=hidden"] + flags("--cflags"),
            libraries=["gannet"],
            library_dirs=libraries,
            runtime_library_dirs=libraries,
        )
    ]
except ImportError:
    print("no PyTorch here: without the backend of torch.distributed")
setup(
    name="gannet-torch",
    version="0.2.0",
    description="Gannet's collectives as a backend of torch.distributed, and its image loader",
    packages=["gannet_torch"],
    ext_modules=extensions,
    cmdclass=commands,
    install_requires=["numpy"],
    entry_points={"torch.backends": ["gannet = gannet_torch:autoload"]},
    python_requires=">=3.9",
)
