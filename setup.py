"""Builds the compiled rooms of ``cext/``; everything else is declared in ``pyproject.toml``."""

import os

from Cython.Build import cythonize
from Cython.Compiler import ExprNodes, Options, PyrexTypes, Symtab
from Cython.Compiler.Errors import error
from setuptools import Extension, setup


def _hint_is_an_error(pos, message, env=None):
    # A nogil function that may raise re-takes the GIL after each call: on a message's path that is a defect.
    error(pos, f"performance hint: {message}")


for module in (ExprNodes, PyrexTypes, Symtab):
    if hasattr(module, "performance_hint"):
        module.performance_hint = _hint_is_an_error
Options.warning_errors = True

JOBS = int(os.environ.get("MOSQ_BUILD_JOBS", os.cpu_count() or 1))
CFLAGS = ["-O3", "-g1", "-fvisibility=hidden", "-fno-strict-aliasing", "-fno-semantic-interposition",
          "-Wno-unused-function", "-Werror=maybe-uninitialized", "-Werror=return-type"]
# flags of the environment come last, to win: distutils puts its own CFLAGS first
CFLAGS += os.environ.get("MOSQ_CFLAGS", "").split()
LDFLAGS = os.environ.get("MOSQ_LDFLAGS", "").split()
DIRECTIVES = {"language_level": 3, "boundscheck": False, "wraparound": False, "initializedcheck": False,
              "cdivision": True, "embedsignature": True}

# the rooms that call OpenSSL; loaded by the first listener or bridge that asks for TLS
WITH_OPENSSL = [*(f"cext/net/{name}.pyx" for name in ("records", "tls", "tls_context", "tls_handshake", "tls_input",
                                                      "tls_layer", "tls_output", "tls_outward", "tls_peer")),
                "cext/setup/tls.pyx", "cext/setup/tls_outward.pyx"]


def extension(name, sources, libraries=()):
    return Extension(name, sources, depends=["setup.py"], extra_compile_args=CFLAGS, extra_link_args=LDFLAGS,
                     libraries=list(libraries))


setup(
    ext_modules=cythonize(
        [*(extension(path[:-4].replace("/", "."), [path], ("ssl", "crypto")) for path in WITH_OPENSSL),
         extension("*", ["cext/**/*.pyx"])],
        nthreads=JOBS, build_dir="build/cython", compiler_directives=DIRECTIVES),
    options={"build_ext": {"parallel": JOBS}},
)
