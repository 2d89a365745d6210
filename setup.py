"""Build of the compiled room, `dmq_fast.kernels`; everything else is declared in pyproject.toml.

Environment switches, all for local builds only:

- ``DMQ_FAST_DEBUG=1``: bounds and initialisation checks of Cython on, C assertions on.
- ``DMQ_FAST_SANITIZE=address,undefined``: compile with these sanitizers (load the runtime first when running).
- ``DMQ_FAST_NATIVE=1``: add ``-march=native``; the result runs on this kind of machine only.
- ``DMQ_FAST_STRICT=1``: every warning of Cython and of the compiler is an error.
"""

import hashlib
import inspect
import multiprocessing
import os
import re
import sys
from pathlib import Path

import Cython
import numpy as np
from Cython.Build import cythonize
from Cython.Compiler import AutoDocTransforms, Options
from Cython.Compiler.StringEncoding import EncodedString
from setuptools import Extension, setup

DEBUG = os.environ.get("DMQ_FAST_DEBUG", "0") not in ("", "0")
SANITIZE = os.environ.get("DMQ_FAST_SANITIZE", "")
NATIVE = os.environ.get("DMQ_FAST_NATIVE", "0") not in ("", "0")
STRICT = os.environ.get("DMQ_FAST_STRICT", "0") not in ("", "0")

# The one home of the Cython directives.
DIRECTIVES = {
    "language_level": 3,
    "binding": True,
    "embedsignature": False,
    "boundscheck": DEBUG,
    "wraparound": DEBUG,
    "initializedcheck": DEBUG,
    "cdivision": True,
}

# src_pyx has a folder a topic; the modules are all in one package, as are the .pxd that other projects cimport.
HEADERS = sorted(header.as_posix() for header in Path("src_pyx").glob("*/*.h"))
FOLDERS = sorted({os.path.dirname(header) for header in HEADERS})

cflags = ["-UNDEBUG" if DEBUG else "-DNDEBUG"]
ldflags = []
# No -ffast-math, no -march: the same bits on every machine of one architecture. A contracted a*b + c would differ
# between compilers.
if sys.platform == "win32":
    cflags += ["/std:c11", "/Od" if DEBUG else "/O2", "/fp:precise"]
else:
    cflags += ["-O1", "-g"] if DEBUG or SANITIZE else ["-O3", "-g0"]
    cflags += ["-ffp-contract=off"]
# These modules have no hot loops: to optimise them would only take time. Without -ffast-math the bits are the same.
COLD = {"_cyutility", "_env", "_memory", "_plan", "_rules", "_sources", "_validate"}
cold_cflags = [flag.replace("-O3", "-O1") for flag in cflags]
if SANITIZE:
    cflags += [f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer"]
    ldflags += [f"-fsanitize={SANITIZE}"]
if NATIVE:
    cflags += ["-march=native"]
if STRICT:
    cflags += ["-Wall", "-Wextra", "-Werror"]
    Options.warning_errors = True

# Everything is built anew after a build of another kind: this file, on which it depends, changes with the kind only.
KIND = Path("build/kind.txt")
kind = repr((cflags, ldflags, os.environ.get("CC"), os.environ.get("CFLAGS"), Cython.__version__, np.__version__))
if not KIND.exists() or KIND.read_text() != kind:
    KIND.parent.mkdir(exist_ok=True)
    KIND.write_text(kind)

# Cython follows the .pxd files that a source cimports, but not its own where that is in another folder.
GENERATED = Path("build/cython")
CHANGED = max(file.stat().st_mtime for file in [KIND, Path("setup.py"), *Path("dmq_fast/kernels").glob("*.pxd")])

# A header with the digest of all sources, which changes with them only: so files tell builds of one version apart.
SOURCES = sorted(
    [*Path("src_pyx").glob("*/*.pyx"), *Path("src_pyx").glob("*/*.h"), *Path("dmq_fast/kernels").glob("*.pxd")]
)
digest = hashlib.sha256()
for file in SOURCES:
    text = file.read_bytes().replace(b"\r\n", b"\n")
    digest.update(f"{file.as_posix()} {len(text)}\n".encode() + text)
DIGEST = GENERATED / "dmq_sources.h"
line = f'#define DMQ_SOURCES "{digest.hexdigest()}"\n'
if not DIGEST.exists() or DIGEST.read_text() != line:
    DIGEST.parent.mkdir(parents=True, exist_ok=True)
    DIGEST.write_text(line)

# The code of typed memoryviews, once for all modules instead of once in each.
SHARED = "dmq_fast.kernels._cyutility"


class Documented(AutoDocTransforms.EmbedSignature):
    """Completes docstrings of cdef classes from what is written once.

    A class gets the signature of its constructor, where `inspect.signature` reads it; a member that Python reads gets
    its lines from the sections "Attributes" or "Parameters" of the docstring of the class.
    """

    def visit_DefNode(self, node):
        """Put the signature of a constructor before the docstring of its class."""
        if self.class_node is not None and node.name in ("__cinit__", "__init__"):
            scope = self.class_node.entry.type.scope
            self.is_format_c = self.is_format_python = False
            self.is_format_clinic = True
            # Without `self`.
            counts = (node.num_posonly_args, len(node.args) - 1 - node.num_posonly_args - node.num_kwonly_args)
            others = (node.star_arg, node.num_kwonly_args, node.starstar_arg)
            signature = self._fmt_signature(None, self.class_name, node.args, *counts, *others, hide_self=True)
            if scope.doc and "\n--\n\n" not in scope.doc:
                scope.doc = EncodedString(f"{signature}\n--\n\n{inspect.cleandoc(scope.doc)}")
        return node

    def visit_PropertyNode(self, node):
        """Give a member without a docstring its lines in the docstring of the class."""
        if self.class_node is not None and not node.entry.doc:
            described = described_in(self.class_node.entry.type.scope.doc or "")
            if node.entry.name in described:
                node.entry.doc = EncodedString(described[node.entry.name])
        return node


def described_in(docstring: str) -> dict[str, str]:
    """Return the descriptions of a numpydoc docstring by name; those of attributes come before those of parameters."""
    found = {}
    for section in ("Parameters", "Attributes"):
        lines = re.search(rf"^{section}\n-+\n(.*?)(?=^\S[^\n]*\n-+$|\Z)", inspect.cleandoc(docstring), re.M | re.S)
        for entry in re.split(r"^(?=\S)", lines[1] if lines else "", flags=re.M):
            names, _, text = entry.partition("\n")
            kind = names.partition(" : ")[2]
            for name in names.partition(" : ")[0].split(", "):
                found[name] = inspect.cleandoc(text) or kind
    return found


AutoDocTransforms.EmbedSignature = Documented


def extension(name: str, sources: list[str]) -> Extension:
    """Return the extension module of a name within `dmq_fast.kernels`."""
    return Extension(
        f"dmq_fast.kernels.{name}",
        sources,
        include_dirs=[*FOLDERS, str(GENERATED), np.get_include()],
        depends=[*HEADERS, KIND.as_posix(), *([str(DIGEST)] if name == "_sources" else [])],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
        extra_compile_args=cold_cflags if name in COLD else cflags,
        extra_link_args=ldflags,
    )


extensions = [extension(source.stem, [source.as_posix()]) for source in sorted(Path("src_pyx").glob("*/*.pyx"))]
extensions.append(extension("_cyutility", []))

setup(
    ext_modules=cythonize(
        extensions,
        include_path=["."],
        compiler_directives=DIRECTIVES,
        # Translation in parallel needs processes that fork.
        nthreads=os.cpu_count() if "fork" in multiprocessing.get_all_start_methods() else 0,
        build_dir=str(GENERATED),
        force=any(code.stat().st_mtime < CHANGED for code in GENERATED.rglob("*.c")),
        shared_utility_qualified_name=SHARED,
    ),
    options={"build_ext": {"parallel": os.cpu_count()}},
)
