#!/usr/bin/env bash
# Configures (the first time) and builds presets of CMakePresets.json. Usage: tools/build.sh PRESET…
set -euo pipefail
cd "$(dirname "$0")/.."

for preset in "$@"; do
  # Later, Ninja configures again by itself when a CMake file changed.
  [[ -f build/$preset/build.ninja ]] || cmake --preset "$preset"
  cmake --build --preset "$preset" --parallel "$(nproc)"
done
