#!/usr/bin/env bash
# wide_code_test.sh LIBWADER_KERNELS.A: files compiled for a wider instruction set define their own functions and
# nothing else. An inline function of a header among them could become the whole program's copy, and an
# initialiser would run before anyone asked the CPU.
set -euo pipefail
symbols=$(nm --print-file-name --defined-only --demangle "$1" | grep -E ':(avx[0-9a-z_]*|amx)\.cpp\.o:' || true)
if [[ -z $symbols ]]; then
  [[ $(uname -m) != x86_64 ]] && exit 0
  echo "no symbols of avx*.cpp or amx.cpp in $1: is this test looking at the right archive?"
  exit 1
fi
# Local symbols (lower case but u, v, w) and the functions of the file's own namespace are as they should be.
foreign=$(grep -Ev ':[0-9a-f]* ([a-tx-z]|T wader::(avx[0-9a-z]+|amx)::[a-z_]+\() ?' <<<"$symbols" || true)
foreign+=$(grep -E '_GLOBAL__sub_I|global constructors' <<<"$symbols" || true)
if [[ -n $foreign ]]; then
  printf 'code for a wider instruction set that others could run:\n%s\n' "$foreign"
  exit 1
fi
