"""pip install . builds the backend against the PyTorch and the libgannet (pkg-config) that are installed."""
import os
import shlex
import subprocess

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension


def flags(what):
    return shlex.split(subprocess.run(["pkg-config", what, "libgannet"], check=True, capture_output=True, text=True).stdout)


libraries = [os.path.normpath(f[2:]) for f in flags("--libs-only-L")]
setup(
    name="gannet-torch",
    version="0.2.0",
    description="Gannet's collectives as a backend of torch.distributed",
    packages=["gannet_torch"],
    ext_modules=[
        CppExtension(
            "gannet_torch._C",
            ["csrc/backend.cpp", "csrc/callbacks.cpp", "csrc/engine.cpp", "csrc/module.cpp", "csrc/moves.cpp", "csrc/reduce.cpp",
             "csrc/staging.cpp"],
            extra_compile_args=["-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-fvisibility=hidden"] + flags("--cflags"),
            libraries=["gannet"],
            library_dirs=libraries,
            runtime_library_dirs=libraries,
        )
    ],
    cmdclass={"build_ext": BuildExtension},
    entry_points={"torch.backends": ["gannet = gannet_torch:autoload"]},
    python_requires=">=3.9",
)
