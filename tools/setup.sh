#!/usr/bin/env bash
# Installs what building (or testing, or fuzzing) needs and this machine lacks: Debian 12, Ubuntu 22.04 or newer.
# Usage: tools/setup.sh build|test|fuzz. Silent when nothing is missing. WADER_SKIP_SETUP=1: never touch packages.
set -euo pipefail

build_packages=(
  g++ make cmake ninja-build pkg-config ccache
  libfmt-dev nlohmann-json3-dev libxxhash-dev libpcre2-dev libutf8proc-dev libcli11-dev libedit-dev liburing-dev
  libcurl4-openssl-dev libssl-dev prometheus-cpp-dev libeigen3-dev
  libgtest-dev libgmock-dev
)
# Boost 1.74 or newer, headers alone. Debian 12's own is 1.74; its 1.81 knows more of coroutines.
boost_packages=(libboost1.81-dev libboost-dev)
# Tests that compare with other programs' npm packages; only where there is no node of that version yet.
node_packages=(nodejs npm)
node_major_min=18
# Tests of the kernels of 64-bit ARM: cross compiler, emulator, and GoogleTest's sources to compile for it.
aarch64_packages=(g++-aarch64-linux-gnu qemu-user-static googletest)
# Tests of the dashboard's pages. Ubuntu has no package of that name, but a snap: it is left to its users.
browser_packages=(chromium)
fuzz_packages=(clang)

say() { echo "setup: $*" >&2; }

# Names of the given packages that dpkg does not have installed.
missing_packages() {
  local installed
  # dpkg-query fails when it does not know one of them; what it prints for the others is right all the same.
  installed=$(dpkg-query --show --showformat='${Package} ${db:Status-Status}\n' "$@" 2>/dev/null || true)
  local name
  for name in "$@"; do
    grep -qx "$name installed" <<<"$installed" || echo "$name"
  done
}

as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    say "needs root to install packages, and there is no sudo. Run this as root:"
    say "  $*"
    exit 1
  fi
}

apt_options=(-qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300)
apt_updated=
apt_update() {  # once a run; a bare machine knows of no package before it
  [[ -z $apt_updated ]] || return 0
  as_root apt-get "${apt_options[@]}" update
  apt_updated=1
}

apt_install() {
  say "installing $*"
  apt_update
  as_root env DEBIAN_FRONTEND=noninteractive apt-get "${apt_options[@]}" install -y --no-install-recommends "$@" \
    >/dev/null
}

# The version that apt would install, nothing where it has none. sed reads to the end: a reader that stops early
# makes apt-cache fail for its closed pipe.
apt_candidate() {
  apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: *\([0-9].*\)/\1/p'
}

have_node() {
  local version
  version=$(node --version 2>/dev/null) || return 1
  version=${version#v}
  ((${version%%.*} >= node_major_min)) && command -v npm >/dev/null
}

# Ubuntu 22.04 has only node 12: of no use, so it is not installed and the tests that want it say that they skip.
apt_node_is_recent() {
  local candidate
  candidate=$(apt_candidate nodejs)
  candidate=${candidate#*:}
  candidate=${candidate%%[!0-9]*}
  ((${candidate:-0} >= node_major_min))
}

need_apt() {
  command -v apt-get >/dev/null && command -v dpkg-query >/dev/null && return
  say "this is not Debian or Ubuntu (no apt-get). Install what these Debian packages hold, then set"
  say "WADER_SKIP_SETUP=1 and try again:"
  say "  ${build_packages[*]} ${boost_packages[-1]}"
  say "  for all tests: node >= $node_major_min with npm, ${aarch64_packages[*]}; for fuzzing: clang with compiler-rt"
  exit 1
}

install_missing() {
  local missing
  missing=$(missing_packages "$@")
  # Package names hold no spaces: the split is wanted.
  # shellcheck disable=SC2086
  [[ -z $missing ]] || apt_install $missing
}

setup_build() {
  install_missing "${build_packages[@]}"
  echo '#include <boost/version.hpp>' | g++ -x c++ -fsyntax-only - 2>/dev/null && return
  local name
  for name in "${boost_packages[@]}"; do
    if apt-cache show "$name" >/dev/null 2>&1; then
      apt_install "$name"
      return
    fi
  done
  apt_install "${boost_packages[-1]}"
}

setup_browser() {
  command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null && return
  apt_update
  if [[ -n $(apt_candidate "${browser_packages[0]}") ]]; then
    apt_install "${browser_packages[@]}"
  else
    say "this system has no package ${browser_packages[*]}; tests of the pages will be skipped"
  fi
}

setup_node() {
  have_node && return
  apt_update
  if apt_node_is_recent; then
    apt_install "${node_packages[@]}"
  else
    say "this system has no node >= $node_major_min; tests that compare with npm packages will be skipped"
  fi
}

# Only where Debian has that cross compiler for certain; 64-bit ARM itself needs none.
setup_aarch64() {
  [[ $(uname -m) != x86_64 ]] || install_missing "${aarch64_packages[@]}"
}

setup_fuzz() {
  install_missing "${fuzz_packages[@]}"
  # Debian and newer Ubuntu keep the sanitizer and fuzzer runtimes in a package of their own.
  local runtime major
  runtime=$(clang++ --print-file-name="libclang_rt.fuzzer-$(uname -m).a")
  if [[ ! -e $runtime ]]; then
    major=$(clang++ -dumpversion)
    apt_install "libclang-rt-${major%%.*}-dev"
  fi
}

[[ ${WADER_SKIP_SETUP:-} != 1 ]] || exit 0
case ${1:-} in
  build) need_apt; setup_build ;;
  test) need_apt; setup_build; setup_node; setup_browser; setup_aarch64 ;;
  fuzz) need_apt; setup_build; setup_fuzz ;;
  *) echo "usage: tools/setup.sh build|test|fuzz" >&2; exit 2 ;;
esac
