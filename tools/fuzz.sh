#!/usr/bin/env bash
# Runs every fuzz target for WADER_FUZZ_SECONDS (default 60), as many at once as there are processors.
# Usage: tools/fuzz.sh [NAME…], e.g. tools/fuzz.sh safetensors. Expects the build of the preset `fuzz`.
# New inputs are kept in build/fuzz/corpus/NAME between runs; inputs that fail go to build/fuzz/failures.
set -euo pipefail
cd "$(dirname "$0")/.."

export seconds=${WADER_FUZZ_SECONDS:-60}
export build=build/fuzz

# One input may take 10 s and the process 2 GiB: beyond that a parser hangs or allocates without bound.
run_target() {
  local name=$1 corpus="$build/corpus/$1" log="$build/logs/$1.log" count
  mkdir -p "$corpus"
  # Seeds are copied in again each time, so that edited ones count; libFuzzer adds its own beside them.
  if [[ -d fuzz/corpus/$name ]]; then
    cp -r "fuzz/corpus/$name/." "$corpus/"
  fi
  local status=0
  "$build/fuzz/${name}_fuzz" "$corpus" -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="$build/failures/$name-" >"$log" 2>&1 || status=$?
  count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  if ((status == 0)); then
    printf 'passed  %-20s %12s inputs in %s s, corpus of %s\n' \
      "$name" "${count:-?}" "$seconds" "$(find "$corpus" -type f | wc -l)"
  else
    printf 'FAILED  %-20s after %s inputs; %s\n' "$name" "${count:-?}" "whole output in $log"
    grep -E -m1 'ERROR: |runtime error|SUMMARY|CHECK failed' "$log" || tail -n 5 "$log"
    sed -n 's/^.*Test unit written to /        the input: /p' "$log"
  fi
  return "$status"
}
export -f run_target

mkdir -p "$build/logs" "$build/failures"
if (($# == 0)); then
  shopt -s nullglob
  for source in fuzz/*_fuzz.cpp; do
    name=${source##*/}
    set -- "$@" "${name%_fuzz.cpp}"
  done
fi
if (($# == 0)); then
  echo "fuzz: there is no fuzz/*_fuzz.cpp" >&2
  exit 1
fi
# xargs exits with 123 when any target failed, after all of them ran.
printf '%s\n' "$@" | xargs -P "$(nproc)" -I {} bash -euo pipefail -c 'run_target {} || exit 1'
