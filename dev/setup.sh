# Sourced by the scripts beside it: finds or installs what they need. Does nothing that is already done.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
VENV=${MOSQ_VENV:-.venv}
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

say() { printf '== %s\n' "$*" >&2; }

# need PACKAGE...: root on Debian installs them, anybody else is told.
need() {
    [ $# -gt 0 ] || return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing $*"
        apt-get update -qq
        # what brings a service must not start it: there may be a broker already, and tests want the port
        local policy=/usr/sbin/policy-rc.d
        [ -e "$policy" ] && policy= || printf '#!/bin/sh\nexit 101\n' > "$policy"
        [ -z "$policy" ] || chmod +x "$policy"
        local status=0
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2 || status=$?
        [ -z "$policy" ] || rm -f "$policy"
        return $status
    else
        say "missing: $*"
        say "install them first; on Debian: sudo apt-get install --no-install-recommends $*"
        exit 1
    fi
}

# The first Python on the path that is new enough; else Debian's own.
find_python() {
    local candidate
    for candidate in python3 /usr/bin/python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            PYTHON=$candidate
            return 0
        fi
    done
    return 1
}

# What a build needs: a compiler, Python, its headers and its venv.
need_for_build() {
    local missing=()
    { command -v gcc && echo '#include <stdio.h>' | gcc -E - ; } >/dev/null 2>&1 || missing+=(gcc libc6-dev)
    echo '#include <openssl/ssl.h>' | gcc -E - >/dev/null 2>&1 || missing+=(libssl-dev)
    find_python || missing+=(python3 python3-dev python3-venv)
    need "${missing[@]}"
    find_python || { say "mosq needs Python 3.11 or newer"; exit 1; }
    missing=()
    "$PYTHON" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
        missing+=(python3-dev)
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    need "${missing[@]}"
}

# What the tests need besides: programs of others that talk to the broker.
need_for_tests() {
    local missing=()
    command -v mosquitto_pub >/dev/null || missing+=(mosquitto-clients)
    # tests/side runs it, and mosquitto_passwd; not as a service
    PATH=$PATH:/usr/sbin command -v mosquitto >/dev/null || missing+=(mosquitto)
    command -v node >/dev/null || missing+=(nodejs)
    command -v npm >/dev/null || missing+=(npm)
    # the report is looked at in a browser (tests/report/test_page.py)
    command -v chromium-headless-shell >/dev/null || missing+=(chromium-headless-shell)
    has_java || missing+=(openjdk-17-jre-headless)
    need "${missing[@]}"
}

# Spark's
has_java() { command -v java >/dev/null || [ -x "${JAVA_HOME:-}/bin/java" ]; }

# What the performance lab needs besides: the broker that mosq is compared with, and what draws.
build_for_lab() {
    PATH=$PATH:/usr/sbin command -v mosquitto >/dev/null || need mosquitto
    build_with bench
}

# What the pipeline needs besides: Spark, which brings no Java, and what draws its report.
build_for_pipeline() {
    has_java || need openjdk-17-jre-headless
    build_with bench pipeline
}

# from_pyproject KEY...: a list in pyproject.toml, one entry a line.
from_pyproject() {
    "$PYTHON" - "$@" <<'PY'
import sys, tomllib
value = tomllib.load(open("pyproject.toml", "rb"))
for key in sys.argv[1:]:
    value = value[key]
print("\n".join(value))
PY
}

make_venv() {
    if ! "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
        say "making $VENV"
        rm -rf "$VENV"
        "$PYTHON" -m venv "$VENV"
    fi
}

# install_once NAME REQUIREMENT...: again only when they change.
install_once() {
    local stamp=$VENV/.installed-$1
    shift
    if [ "$(cat "$stamp" 2>/dev/null)" != "$*" ]; then
        say "installing $*"
        "$VENV/bin/pip" install -q "$@"
        echo "$*" > "$stamp"
    fi
}

# build_with EXTRA...: built, and what pyproject.toml lists under these names is there.
build_with() {
    local extra
    build
    mapfile -t requirements < <(for extra in "$@"; do from_pyproject project optional-dependencies "$extra"; done)
    install_once "${!#}" "${requirements[@]}"
}

# Compiles in place and makes the package importable from here: an installed copy would be shadowed by cext/ anyway.
build() {
    need_for_build
    make_venv
    mapfile -t requirements < <(from_pyproject build-system requires)
    install_once build "${requirements[@]}"
    # other directives or flags do not make Cython look again, and what has lost its source must go
    local flags="${MOSQ_CFLAGS:-} $(cksum < setup.py)"
    if [ "$(cat build/flags 2>/dev/null)" != "$flags" ]; then
        rm -rf build/cython build/temp.* build/lib.*
        find cext -name '*.so' -delete
        mkdir -p build
        echo "$flags" > build/flags
    fi
    find cext -name '*.so' | while read -r so; do [ -e "${so%%.cpython*}.pyx" ] || rm "$so"; done
    local built=$VENV/.built
    if [ ! -e "$built" ] || [ -n "$(find setup.py pyproject.toml -newer "$built")" ]; then
        say "building"
        "$VENV/bin/pip" install -q --no-build-isolation --config-settings editable_mode=compat -e .
    elif [ -n "$(find cext \( -name '*.pyx' -o -name '*.pxd' -o -name '*.h' \) -newer "$built" -print -quit)" ] ||
         [ -z "$(find cext -name '*.so' -print -quit)" ]; then
        say "building what has changed"
        "$VENV/bin/python" setup.py -q build_ext --inplace
    fi
    touch "$built"
}

build_for_tests() {
    need_for_tests
    build_with test
}

# Python keeps what it has compiled in build/, also where the environment asks it not to: tests start Python a thousand times.
keep_bytecode() {
    unset PYTHONDONTWRITEBYTECODE
    export PYTHONPYCACHEPREFIX=$PWD/build/bytecode
}
