#!/usr/bin/env bash
# Configures (the first time) and builds presets of CMakePresets.json. Usage: tools/build.sh PRESET[:TARGET]…
set -euo pipefail
cd "$(dirname "$0")/.."

for spec in "$@"; do
  preset=${spec%%:*} target=()
  [[ $spec == "$preset" ]] || target=(--target "${spec#*:}")
  # Later, Ninja configures again by itself when a CMake file changed.
  [[ -f build/$preset/build.ninja ]] || cmake --preset "$preset"
  cmake --build --preset "$preset" --parallel "$(nproc)" "${target[@]}"
done
