#!/usr/bin/env bash
# Builds and runs the tests. Usage: tools/test.sh [release] [asan] [tsan] [aarch64]; without names, all four:
#   release  every test
#   asan     unit tests and the short whole-program tests, with AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan     tests of the code with threads, with ThreadSanitizer
#   aarch64  the kernels of 64-bit ARM and what they stand on, under an emulator
# The last line is the sum, "N passed, N failed, N skipped". Exit 1 when anything failed.
# With CI=true the npm packages must install and the emulator be there, so that the tests which need them cannot be
# skipped unseen.
set -euo pipefail
cd "$(dirname "$0")/.."

# On 64-bit ARM the release build has those kernels.
can_emulate() {
  [[ $(uname -m) != aarch64 && -d /usr/src/googletest ]] &&
    command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64-static >/dev/null
}

times=()
if (($# == 0)); then
  set -- release asan tsan
  if can_emulate; then
    set -- "$@" aarch64
  elif [[ $(uname -m) != aarch64 ]]; then
    times+=('    - s  aarch64: left out; it needs g++-aarch64-linux-gnu, qemu-user-static and googletest')
    if [[ ${CI:-} == true ]]; then
      printf '%s\nwith CI=true that is a failure\n' "${times[@]}" >&2
      exit 1
    fi
  fi
fi

step() {  # step NAME COMMAND…: runs it under a headline and remembers how long it took
  local name=$1 start=$SECONDS status=0
  shift
  printf '\n== %s\n' "$name"
  "$@" || status=$?
  times+=("$(printf '%5d s  %s' $((SECONDS - start)) "$name")")
  return "$status"
}

# Packages of other programs that serve as oracles. --ignore-scripts: no package may run code while it installs.
npm_packages() {
  local lock=tests/npm/package-lock.json installed=tests/npm/node_modules/.installed-lock.json
  if [[ ! -f $lock ]] || cmp -s "$lock" "$installed"; then
    return 0
  fi
  if ! command -v npm >/dev/null; then
    echo "there is no npm here: tests that compare with npm packages will be skipped"
    return 1
  fi
  if ! (cd tests/npm && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error); then
    echo "the npm packages of tests/npm could not be installed: tests that need them will be skipped"
    return 1
  fi
  cp "$lock" "$installed"
}

run_tests() {  # every test even after a failure: the sum at the end decides
  local reports=$PWD/build/$1/reports
  rm -rf "$reports"
  mkdir -p "$reports"
  ctest --preset "$1" --parallel "$(nproc)" --output-junit "$reports/ctest.xml" || true
}

reports=()
if ! step 'npm packages' npm_packages && [[ ${CI:-} == true ]]; then
  echo 'with CI=true that is a failure' >&2
  exit 1
fi
for preset in "$@"; do
  step "$preset: build" tools/build.sh "$preset"
  step "$preset: tests" run_tests "$preset"
  reports+=("build/$preset/reports")
done

printf '\n== summary\n'
printf '%s\n' "${times[@]}"
printf '%5d s  in all\n' "$SECONDS"
tools/count_tests.sh "${reports[@]}" 2>&1
