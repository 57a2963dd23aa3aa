#!/usr/bin/env bash
# The scripts of tools/: test counts are right, whatever the reports say, and every script parses.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT

failures=0
expect() {  # expect WHAT WANTED GOT
  if [[ $2 != "$3" ]]; then
    printf 'FAILED %s\n  wanted: %s\n  got:    %s\n' "$1" "$2" "$3"
    failures=$((failures + 1))
  fi
}

# One test in the form of ctest --output-junit: NAME STATUS [SKIP_MESSAGE].
ctest_case() {
  printf '\t<testcase name="%s" classname="%s" time="0.1" status="%s">\n' "$1" "$1" "$2"
  [[ -z ${3:-} ]] || printf '\t\t<skipped message="%s"/>\n' "$3"
  printf '\t\t<system-out>&lt;testcase name="no" status="fail"&gt;\n</system-out>\n\t</testcase>\n'
}
gtest_case() {  # NAME RESULT [INNER]
  printf '    <testcase name="%s" file="x.cpp" line="1" status="run" result="%s" time="0" classname="Suite"' "$1" "$2"
  if [[ -n ${3:-} ]]; then printf '>\n      %s\n    </testcase>\n' "$3"; else printf ' />\n'; fi
}
count() { "$root/tools/count_tests.sh" "$@" 2>"$temporary/notes" || echo "exit $?"; }

reports=$temporary/release/reports
mkdir -p "$reports"
{ ctest_case unit run; ctest_case script run; } >"$reports/ctest.xml"
{
  gtest_case One completed
  gtest_case Two completed
  gtest_case Three skipped '<skipped message="x.cpp:3&#x0A;no direct reads"/>'
} >"$reports/unit.xml"
expect 'cases and scripts add up' '3 passed, 0 failed, 1 skipped' "$(count "$reports")"
expect 'a skip is told with its reason' 'skipped  release/unit: Suite.Three (no direct reads)' "$(cat "$temporary/notes")"

ctest_case unit fail >"$reports/ctest.xml"
expect 'a crash after passing cases fails' $'2 passed, 1 failed, 1 skipped\nexit 1' "$(count "$reports")"

{ gtest_case One completed; gtest_case Two completed '<failure message="a"/>'; } >"$reports/unit.xml"
expect 'a failed case counts once' $'1 passed, 1 failed, 0 skipped\nexit 1' "$(count "$reports")"

{
  ctest_case gone notrun 'Unable to find executable'
  ctest_case script notrun 'SKIP_RETURN_CODE=77'
  ctest_case off disabled
  ctest_case good run
} >"$reports/ctest.xml"
expect 'a program that was not built fails' $'1 passed, 1 failed, 2 skipped\nexit 1' "$(count "$reports")"

mkdir -p "$temporary/asan/reports"
ctest_case good run >"$temporary/asan/reports/ctest.xml"
ctest_case good run >"$reports/ctest.xml"
expect 'several builds are summed' '2 passed, 0 failed, 0 skipped' "$(count "$reports" "$temporary/asan/reports")"

: >"$reports/ctest.xml"
expect 'no report is a failure' $'0 passed, 1 failed, 0 skipped\nexit 1' "$(count "$reports")"
printf '<testsuite>\n</testsuite>\n' >"$reports/ctest.xml"
expect 'no test is a failure' $'0 passed, 0 failed, 0 skipped\nexit 1' "$(count "$reports")"

for script in "$root"/tools/*.sh "$root/.ci/run"; do
  bash -n "$script" || failures=$((failures + 1))
  [[ -x $script ]] || expect "$script" 'executable' 'not executable'
done
expect 'wrong use of setup.sh' 'exit 2' "$("$root/tools/setup.sh" everything 2>/dev/null || echo "exit $?")"

((failures == 0)) && echo 'all as wanted'
