#!/bin/sh
# Copyright (c) 2026, The kvmfleet.migration developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Installs what the tests and the lab need: Debian packages that are missing, and two virtual environments in .build.
# With the argument "browser" also what the tests of the report's page need: a browser, and packages of npm; with "eda" a Java for ansible-rulebook;
# with "machines" what makes whole machines, and fences them.
# Quick when there is nothing to do. Services of packages that it installs are neither started nor left enabled: the lab
# starts its own, each in its own namespaces.

set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
build=$root/.build
more=${1:-}
policy=/usr/sbin/policy-rc.d
# As the suites see it: tests/tools/suites/places.py.
system_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
least_java=17
made_policy=no

wanted_packages() {
    grep -hv '^#' "$here/debian-packages.txt" ${more:+"$here/$more-packages.txt"}
}

java_is_there() {
    version=$(PATH=$system_path java -version 2>&1 | sed -nE 's/^[a-z]+ version "([0-9]+).*/\1/p')
    test "${version:-0}" -ge "$least_java"
}

# What came to the machine in another way than by that package of Debian's, which may not even go beside it.
is_there_without() {
    case $1 in
    npm) command -v npm >/dev/null ;;
    default-jre-headless) java_is_there ;;
    *) false ;;
    esac
}

missing_packages() {
    for package in $(wanted_packages); do
        if is_there_without "$package"; then
            continue
        fi
        status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        test "$status" = installed || echo "$package"
    done
}

# the packages with services of which a machine that is no hypervisor should run none because of a test
installed_services() {
    dpkg-query -W -f '${db:Status-Status} ${Package}\n' 'libvirt-*' openssh-server 'prometheus*' 2>/dev/null | sed -n 's/^installed //p'
}

disable_units_of() {
    command -v systemctl >/dev/null || return 0
    for package in "$@"; do
        dpkg-query -L "$package" | sed -nE 's#^(/usr)?/lib/systemd/system/([^/@]+\.(service|socket|timer))$#\2#p'
    done | sort -u | xargs -r systemctl --no-reload --quiet disable
}

install_packages() {
    if [ "$(id -u)" -ne 0 ]; then
        echo "These Debian packages are missing: $*" >&2
        echo "Install them as root: apt-get install --no-install-recommends $*" >&2
        exit 1
    fi
    installed_services >"$build/services.before"
    trap after_install EXIT
    if [ ! -e "$policy" ]; then
        made_policy=yes
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 0755 "$policy"
    fi
    apt-get -q update
    DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install "$@"
    trap - EXIT
    after_install
}

after_install() {
    if [ "$made_policy" = yes ]; then
        rm -f "$policy"
    fi
    # shellcheck disable=SC2046
    disable_units_of $(installed_services | grep -Fxv -f "$build/services.before" || true)
    rm -f "$build/services.before"
}

find_python() {
    for candidate in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    echo "No Python 3.11 or newer with venv was found, and ansible-core needs one." >&2
    exit 1
}

# make_venv NAME PYTHON REQUIREMENTS [VENV-OPTION...]: made anew when Python or requirements changed, else left alone
make_venv() {
    name=$1 python=$2 requirements=$3
    shift 3
    # A link leads to the environment of another clone, which --clear would empty.
    if [ -L "$build/$name" ]; then
        echo "The virtual environment .build/$name is a link, and is left as it is" >&2
        return
    fi
    stamp=$build/$name/.complete
    sum=$({ "$python" -V; echo "$build" "$@"; cat "$requirements" "$root/requirements.txt"; } | sha256sum)
    if [ -e "$stamp" ] && [ "$(cat "$stamp")" = "$sum" ]; then
        return
    fi
    echo "Making the virtual environment .build/$name" >&2
    "$python" -m venv --clear "$@" "$build/$name"
    "$build/$name/bin/python" -m pip --disable-pip-version-check install -q -r "$requirements"
    printf '%s\n' "$sum" >"$stamp"
}

mkdir -p "$build"
exec 9>"$build/setup.lock"
flock 9
missing=$(missing_packages)
if [ -n "$missing" ]; then
    # shellcheck disable=SC2086
    install_packages $missing
fi
make_venv venv "$(find_python)" "$root/test-requirements.txt"
"$build/venv/bin/python" "$here/awx_collection.py"
make_venv venv-integration /usr/bin/python3 "$here/integration-requirements.txt" --system-site-packages
if [ "$more" = eda ] && ! java_is_there; then
    echo "ansible-rulebook needs Java $least_java or newer, and the java of this machine is not: $(PATH=$system_path java -version 2>&1 | head -n 1)" >&2
    exit 1
fi
if [ "$more" = browser ]; then
    "$build/venv/bin/python" "$here/charts.py" --install
fi
