#!/usr/bin/env bash
# Makes this checkout runnable: .venv with the pinned dependencies, a Java 17+ runtime for Spark, compiled kernels, Java's
# class archive (`setup.sh run`); and what tests and benchmarks need beside these: their Python packages and, where
# Debian's packages can be installed, MariaDB's programs, a browser, ZooKeeper (`setup.sh`).
# Idempotent: stamps keyed by what decides the result make a second run a second.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\033[1mset-up:\033[0m %s\n' "$*"; }
fail() { printf 'set-up failed: %s\n' "$*" >&2; exit 1; }

as_root() { # runs a command as root, or returns 1 when that is impossible
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1; fi
}

updated=no
apt_install() { # the first of the named packages that exists and installs
    command -v apt-get >/dev/null || return 1
    as_root true || return 1
    if [ $updated = no ]; then as_root apt-get update -qq >/dev/null || return 1; updated=yes; fi
    for package in "$@"; do
        if apt-cache show "$package" >/dev/null 2>&1 &&
            DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -qq --no-install-recommends \
                -o Dpkg::Use-Pty=0 "$package" >/dev/null; then
            return 0
        fi
    done
    return 1
}

java_version() { # the major version of the Java that Spark would use, 0 for none
    local java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
    command -v "$java" >/dev/null || { echo 0; return; }
    "$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

need_java() {
    local found
    found=$(java_version)
    [ "${found:-0}" -ge 17 ] && return 0
    say "Java: a runtime of version 17 or newer (about 200 MB)"
    # /usr/share/man/man1 is missing in slim images, and the JRE's install script wants it.
    as_root mkdir -p /usr/share/man/man1 || true
    apt_install openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless || true
    found=$(java_version)
    [ "${found:-0}" -ge 17 ] || fail "Spark needs Java 17 or newer, found ${found:-none}.
  As root on Debian: apt-get install openjdk-17-jre-headless
  Elsewhere: install a JRE 17 and set JAVA_HOME to it; then run this again."
}

find_python() { # a Python 3.11 or newer that can make virtual environments
    for python in python3.11 python3.12 python3.13 python3; do
        if command -v $python >/dev/null && $python -c \
            'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo $python
            return 0
        fi
    done
    return 1
}

need_venv() {
    local python
    if ! python=$(find_python); then
        say "Python: 3.11 or newer with venv"
        apt_install python3-venv || true
        python=$(find_python) || fail "Python 3.11 or newer with its venv module is needed.
  As root on Debian: apt-get install python3-venv"
    fi
    say "virtual environment .venv ($($python --version))"
    [ -x .venv/bin/python ] || $python -m venv .venv
    say "dependencies (about 700 MB unpacked, most of it Spark; some minutes on a slow line)"
    if [ "${1:-}" = run ]; then install '.[demo]'; else install '.[demo,dev]'; fi
}

install() { # this package and what it depends on; a line every two seconds, for pip says little
    .venv/bin/python -m pip install --disable-pip-version-check --quiet --progress-bar off -e "$1" &
    local pip=$! began=$SECONDS
    while kill -0 $pip 2>/dev/null; do
        sleep 2
        [ ! -t 2 ] || printf '\r\033[1mset-up:\033[0m pip: %s s, %s MB ' $((SECONDS - began)) \
            "$(du -sm .venv | cut -f1)" >&2
    done
    [ ! -t 2 ] || printf '\r\033[K' >&2
    wait $pip || fail "pip could not install the pinned dependencies of pyproject.toml (its message is above)."
}

mariadb_for_comparison() { # optional: without it, tests that need it are skipped and say so
    for program in mariadbd mariadb mariadb-dump sysbench; do
        command -v $program >/dev/null || [ -x /usr/sbin/$program ] || return 1
    done
    [ -e /usr/share/java/mariadb-java-client.jar ]
}

chromium_for_tests() { # optional: without it, the tests with a page in a real browser are skipped and say so
    command -v chromium >/dev/null
}

zookeeper_for_tests() { # optional: without it, the tests of servers that stand by are skipped and say so
    [ -e /usr/share/java/zookeeper.jar ]
}

prepared() { # kernels, once for each version of the sources; Java's classes, once, beside them: quick when done
    .venv/bin/python -m noria.spark.hosting.archive >.venv/.noria-archive.log 2>&1 &
    local archive=$! began=$SECONDS reported=$SECONDS
    trap 'kill '$archive' 2>/dev/null || true' EXIT # also after Ctrl-C, which a background process does not get
    .venv/bin/python -m noria.kernels.making
    while kill -0 $archive 2>/dev/null; do
        sleep 0.2
        [ $((SECONDS - reported)) -ge 2 ] || continue
        reported=$SECONDS
        if [ -t 2 ]; then printf '\r\033[1mset-up:\033[0m a class archive for Spark: %s s ' $((SECONDS - began)) >&2
        else say "a class archive for Spark: $((SECONDS - began)) s"; fi
    done
    [ ! -t 2 ] || printf '\r\033[K' >&2
    wait $archive || true
    trap - EXIT
    grep '^no class archive' .venv/.noria-archive.log || true
}

# The place is part of the stamps: an editable install points at its checkout.
key=$({ cat pyproject.toml scripts/setup.sh; pwd; } | sha256sum | cut -d' ' -f1)
is_done() { [ "$(cat ".venv/.noria-$1" 2>/dev/null)" = "$key" ] && [ -x .venv/bin/noria ]; }

if ! is_done run; then
    need_java
    need_venv "${1:-}"
    echo "$key" >.venv/.noria-run
    [ "${1:-}" = run ] || echo "$key" >.venv/.noria-dev
    changed=yes
fi
[ "$(java_version)" -ge 17 ] || need_java
prepared
if [ "${1:-}" = run ] || is_done tests; then
    [ -z "${changed:-}" ] || say "done"
    exit 0
fi
say "what tests need beside it"
is_done dev || install '.[dev]'
if ! mariadb_for_comparison; then
    say "MariaDB's programs, its JDBC driver and sysbench, for comparisons (optional)"
    # The -core packages bring the programs without a service that starts by itself.
    { apt_install mariadb-server-core && apt_install mariadb-client && apt_install sysbench &&
        apt_install libmariadb-java; } ||
        say "not installed; tests and benchmarks that compare with MariaDB will be skipped"
fi
if ! chromium_for_tests; then
    say "Chromium, for tests with pages that mean harm (optional, about 400 MB)"
    apt_install chromium || say "not installed; tests that need a browser will be skipped"
fi
if ! zookeeper_for_tests; then
    say "ZooKeeper, for tests of servers that stand by (optional)"
    apt_install zookeeper || say "not installed; tests that need ZooKeeper will be skipped"
fi
echo "$key" >.venv/.noria-tests
say "done"
