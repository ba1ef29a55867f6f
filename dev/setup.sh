# Functions for the other scripts: they find or install requirements, and skip steps that are already done.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
VENV=${MOSQ_VENV:-.venv}
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

report() { printf '== %s\n' "$*" >&2; }

# need PACKAGE...: installs Debian packages as root; for other users, prints which ones are missing and exits.
need() {
    [ $# -gt 0 ] || return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        report "installing $*"
        apt-get update -qq
        # a package must not start its service: another broker may be running, and tests need the port
        local policy=/usr/sbin/policy-rc.d
        [ -e "$policy" ] && policy= || printf '#!/bin/sh\nexit 101\n' > "$policy"
        [ -z "$policy" ] || chmod +x "$policy"
        local status=0
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2 || status=$?
        [ -z "$policy" ] || rm -f "$policy"
        return $status
    else
        report "missing: $*"
        report "install them first; on Debian: sudo apt-get install --no-install-recommends $*"
        exit 1
    fi
}

# find_python: sets PYTHON to the first Python on the path that is new enough, else to Debian's.
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

# need_for_build: a compiler, OpenSSL, hiredis, Python, its headers and its venv module.
need_for_build() {
    local missing=()
    { command -v gcc && echo '#include <stdio.h>' | gcc -E - ; } >/dev/null 2>&1 || missing+=(gcc libc6-dev)
    echo '#include <openssl/ssl.h>' | gcc -E - >/dev/null 2>&1 || missing+=(libssl-dev)
    echo '#include <hiredis/hiredis.h>' | gcc -E - >/dev/null 2>&1 || missing+=(libhiredis-dev)
    find_python || missing+=(python3 python3-dev python3-venv)
    need "${missing[@]}"
    find_python || { report "mosq needs Python 3.11 or newer"; exit 1; }
    missing=()
    "$PYTHON" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
        missing+=(python3-dev)
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    need "${missing[@]}"
}

# need_for_tests: other programs that connect to the broker.
need_for_tests() {
    local missing=()
    command -v mosquitto_pub >/dev/null || missing+=(mosquitto-clients)
    # tests/side runs mosquitto and mosquitto_passwd, not as a service
    PATH=$PATH:/usr/sbin command -v mosquitto >/dev/null || missing+=(mosquitto)
    # tests/native compiles the example of docs/plugins-c.md
    [ -e /usr/include/mosquitto_plugin.h ] || missing+=(mosquitto-dev)
    [ -e /usr/include/mosquitto.h ] || missing+=(libmosquitto-dev)
    command -v node >/dev/null || missing+=(nodejs)
    command -v npm >/dev/null || missing+=(npm)
    # tests/report/test_page.py opens the report in a browser
    command -v chromium-headless-shell >/dev/null || missing+=(chromium-headless-shell)
    # tests/monitoring runs prometheus and promtool, not as a service
    command -v promtool >/dev/null || missing+=(prometheus)
    # tests/trace reads the captures of mosq trace
    command -v tshark >/dev/null || missing+=(tshark)
    # tests/redis and tests/cluster run redis-server, not as a service
    command -v redis-server >/dev/null || missing+=(redis-server)
    # tests/cluster runs haproxy, not as a service
    PATH=$PATH:/usr/sbin command -v haproxy >/dev/null || missing+=(haproxy)
    has_java || missing+=(openjdk-17-jre-headless)
    need "${missing[@]}"
}

# Spark needs Java.
has_java() { command -v java >/dev/null || [ -x "${JAVA_HOME:-}/bin/java" ]; }

# build_for_lab: also installs Mosquitto for the comparison, and the packages that draw plots.
build_for_lab() {
    PATH=$PATH:/usr/sbin command -v mosquitto >/dev/null || need mosquitto
    build_with bench
}

# build_for_pipeline: also installs Spark, Java, and the packages that draw the report.
build_for_pipeline() {
    has_java || need openjdk-17-jre-headless
    build_with bench pipeline
}

# from_pyproject KEY...: prints a list in pyproject.toml, one entry per line.
from_pyproject() {
    "$PYTHON" - "$@" <<'PY'
import sys, tomllib
value = tomllib.load(open("pyproject.toml", "rb"))
for key in sys.argv[1:]:
    value = value[key]
print("\n".join(value))
PY
}

# version: prints the version of mosq. wheel: prints the path of its wheel in dist/, and fails if there is none.
version() { sed -n 's/^VERSION = "\(.*\)"/\1/p' mosq/version.py; }
wheel() { ls "dist/mosq-$(version)"-*.whl; }

# make_venv: makes the environment, again if it is broken or if the folder has been moved or copied: its scripts contain the path.
make_venv() {
    if [ "$(cat "$VENV/.place" 2>/dev/null)" != "$PWD" ] || ! "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
        if [ -e "$VENV" ] && [ ! -e "$VENV/pyvenv.cfg" ] && [ -n "$(ls -A "$VENV")" ]; then
            report "$VENV is not an environment of Python; remove it, or set MOSQ_VENV to another folder"
            exit 1
        fi
        if [ ! -w . ] || { [ -e "$VENV" ] && [ ! -w "$VENV" ]; }; then
            report "the environment $VENV cannot be made again, because $(id -un) may not write here; run as the owner of $PWD"
            exit 1
        fi
        report "making $VENV"
        rm -rf "$VENV"
        "$PYTHON" -m venv "$VENV"
        echo "$PWD" > "$VENV/.place"
    elif [ "$(base_of "$VENV/bin/python")" != "$(base_of "$PYTHON")" ]; then
        report "$VENV stays with Python $(base_of "$VENV/bin/python"), and $PYTHON is $(base_of "$PYTHON"); to change it: make clean build"
    fi
}

# base_of PYTHON: the version and the place of an interpreter; an environment has those of the Python that made it.
base_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2], "in", sys.base_prefix)'; }

# lock: waits for another build in this folder. unlock: the next one may begin; programs that start later do not inherit the lock.
lock() {
    mkdir -p build
    exec 9> build/.lock
    flock -n 9 || { report "another build runs here; waiting for it"; flock 9; }
}
unlock() { exec 9>&-; }

# install_once NAME REQUIREMENT...: installs the requirements, and again only after they change.
install_once() {
    local stamp=$VENV/.installed-$1
    shift
    if [ "$(cat "$stamp" 2>/dev/null)" != "$*" ]; then
        report "installing $*"
        "$VENV/bin/pip" install "$@" ||
            { report "pip cannot install them, see above; check the network, or set PIP_INDEX_URL, and try again"; return 1; }
        echo "$*" > "$stamp"
    fi
}

# build_with EXTRA...: builds, and installs these extras of pyproject.toml. Tests and measurements also get the interfaces
# of cext/testing.
build_with() {
    prepare_build "$@"
    case " $* " in
        *' test '* | *' perf '*) compile_changed --tests ;;
        *) compile_changed ;;
    esac
    finish_installing
}

build() { build_with; }

# prepare_build EXTRA...: installs the tools for a build, and starts pip for the command mosq and the extras. They do not need
# the compiled units, so pip runs beside the compiler; finish_installing waits for it.
prepare_build() {
    need_for_build
    lock
    make_venv
    mapfile -t requirements < <(from_pyproject project optional-dependencies build)
    install_once build "${requirements[@]}"
    install_all "$@" > build/install.log 2>&1 &
    INSTALLING=$!
    trap 'wait' EXIT                # if the compiler fails, pip still ends its work
}

finish_installing() {
    if kill -0 "$INSTALLING" 2>/dev/null && [ -s build/install.log ]; then
        report "pip is still installing"
        tail -n +1 -f --pid="$INSTALLING" build/install.log >&2
    fi
    wait "$INSTALLING" || { cat build/install.log >&2; report "pip failed; its output is above"; exit 1; }
    # A broker does not always store bytecode: its user may not write here, or PYTHONDONTWRITEBYTECODE is set. To compile the sources
    # at each start takes longer than all the rest of it.
    env -u PYTHONPYCACHEPREFIX "$VENV/bin/python" -m compileall -q mosq || true
    unlock
}

# install_all EXTRA...: installs the command mosq, which runs from this folder, its requirements, and the extras.
install_all() {
    local declared extra
    declared=$(cat pyproject.toml setup.py | cksum)
    if [ "$(cat "$VENV/.declared" 2>/dev/null)" != "$declared" ]; then
        report "installing the command mosq and its requirements"
        MOSQ_BUILD=none "$VENV/bin/pip" install --no-build-isolation --config-settings editable_mode=compat -e .
        echo "$declared" > "$VENV/.declared"
    fi
    [ $# -gt 0 ] || return 0
    mapfile -t requirements < <(for extra in "$@"; do from_pyproject project optional-dependencies "$extra"; done)
    install_once "${!#}" "${requirements[@]}"
}

# compile OPTION...: builds in place (dev/compiling.py has the options).
compile() {
    report "building"
    rm -f build/current
    touch build/started
    "$VENV/bin/python" setup.py -q build_ext --inplace "$@"
    sizes "$@" > build/sizes
    echo "$*" > build/current
    touch -r build/started build/current    # a source that changed during the build is newer
}

# sizes [--separate]: the compiled files that a broker loads, with their sizes; mosq/built.py compares them too.
sizes() {
    {
        find mosq -maxdepth 1 \( -name '_core.*' -o -name '_tls.*' -o -name '_bench.*' -o -name '_redis.*' \) ! -name '*.pyi' -printf '%s %p\n'
        case " $* " in *' --separate '*) find cext -name '*.so' -not -path 'cext/testing/*' -printf '%s %p\n' ;; esac
    } | sort
}

# compile_changed [--tests]: builds what has changed. A tree with separate modules (make build-separate) stays one.
compile_changed() {
    [ "$(cat build/kind 2>/dev/null)" != separate ] || set -- --separate
    if [ ! -e build/current ] || [ "$(cat build/current)" != "$*" ] || [ -n "${MOSQ_CFLAGS:-}${MOSQ_LDFLAGS:-}" ] ||
       [ "$(cat build/sizes 2>/dev/null)" != "$(sizes "$@")" ] ||
       [ -n "$(find cext dev/unit.py dev/compiling.py setup.py \( -name '*.p[xy][xd]' -o -name '*.py' \) -newer build/current -print -quit)" ]; then
        compile "$@"
    fi
}

# build_sanitized: builds a copy in build/asan with AddressSanitizer and UndefinedBehaviorSanitizer, since a sanitized build must not
# mix with a plain one, and goes into it. Sets `preload`, the libraries that a program with this build needs in LD_PRELOAD; reports
# go into files build/asan/report.*, since pytest hides the output of a test that dies.
build_sanitized() {
    local copy=build/asan
    need_for_build
    mkdir -p "$copy"
    # tar keeps the times of files, so that only changed sources are compiled again; it replaces tests and Python as a whole
    rm -rf "$copy/tests" "$copy/conf" "$copy/docs" "$copy/perf"
    [ ! -d "$copy/mosq" ] || find "$copy/mosq" -type f ! -name '*.so' -delete
    tar -c --exclude='*.so' --exclude=__pycache__ \
        bin cext mosq tests conf docs dev perf setup.py pyproject.toml MANIFEST.in LICENSE README.md | tar -x -C "$copy"
    (cd "$copy/cext" && find . -name '*.p[xy][xd]' | while read -r file; do [ -e "../../../cext/$file" ] || rm "$file"; done)
    cd "$copy"
    local sanitize="-fsanitize=address,undefined -fno-omit-frame-pointer"
    export MOSQ_CFLAGS="$sanitize -O1 -Wno-error=maybe-uninitialized" MOSQ_LDFLAGS="$sanitize"
    VENV=.venv
    build_with test
    preload="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
    export MOSQ_SANITIZED=1 PYTHONMALLOC=malloc
    export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1:log_path=$PWD/report
    export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:log_path=$PWD/report
    rm -f report.*
}

build_for_tests() {
    need_for_tests
    build_with test
}

# keep_bytecode: stores Python's bytecode in build/, even if the environment forbids it: tests start Python a thousand times.
keep_bytecode() {
    unset PYTHONDONTWRITEBYTECODE
    export PYTHONPYCACHEPREFIX=$PWD/build/bytecode
}
