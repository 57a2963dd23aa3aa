#!/usr/bin/env bash
# wide_code_test.sh NM LIBRARY.A…: files compiled for a wider instruction set define their own functions and
# nothing else. An inline function of a header among them could become the whole program's copy, and an
# initialiser would run before anyone asked the CPU.
set -euo pipefail
files='(float_)?(avx[0-9a-z_]*|amx|neon|peak_[0-9a-z]+)\.cpp\.o:'
symbols=$("$1" --print-file-name --defined-only --demangle "${@:2}" | grep -E ":$files" || true)
if [[ -z $symbols ]]; then
  [[ $(uname -m) =~ ^(x86_64|aarch64)$ ]] || exit 0
  echo "no symbols of avx*.cpp or neon.cpp in ${*:2}: is this test looking at the right archives?"
  exit 1
fi
# Local symbols (lower case but u, v, w), the functions of the file's own namespace and the measured peaks are as they
# should be.
foreign=$(grep -Ev ':[0-9a-f]* ([a-tx-z]|T wader::((avx[0-9a-z]+|amx|neon)::[a-z_]+|run_[0-9a-z]+_peak)\() ?' <<<"$symbols" || true)
foreign+=$(grep -E '_GLOBAL__sub_I|global constructors' <<<"$symbols" || true)
if [[ -n $foreign ]]; then
  printf 'code for a wider instruction set that others could run:\n%s\n' "$foreign"
  exit 1
fi
