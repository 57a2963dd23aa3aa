#!/usr/bin/env bash
# Sums test reports. Usage: tools/count_tests.sh REPORTS…, each a folder with ctest.xml (ctest --output-junit) and, for
# GoogleTest programs, NAME.xml of the test NAME. A program counts by its cases where it has a report, as one test
# where it has none; one that ctest saw fail (crash, leak, time-out) after all its cases passed counts as a failure more.
# Prints each skipped case with its reason, each failed test, and at last "N passed, N failed, N skipped".
# Exit 1 when a test failed or none ran.
set -euo pipefail

# NAME STATUS SKIP_MESSAGE of each test in a report of ctest, tab-separated. Markup in output is escaped there.
ctest_results() {
  awk '
    function attribute(key) {
      return match($0, " " key "=\"[^\"]*\"") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 4) : ""
    }
    /^\t<testcase / { name = attribute("name"); status = attribute("status"); skip = "" }
    /^\t\t<skipped / { skip = attribute("message") }
    /^\t<\/testcase>/ { print name "\t" status "\t" skip }
  ' "$1"
}

# PASSED FAILED SKIPPED of one GoogleTest report; skipped cases are told on stderr, with the label $2.
gtest_cases() {
  awk -v label="$2" '
    function attribute(key) {
      return match($0, " " key "=\"[^\"]*\"") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 4) : ""
    }
    function settle() {
      if (result == "completed") { if (bad) failed++; else passed++ }
      if (result == "skipped") {
        skipped++
        sub(/^.*&#x0A;/, "", reason)
        print "skipped  " label ": " class "." name (reason == "" ? "" : " (" reason ")") > "/dev/stderr"
      }
      result = ""
    }
    /^    <testcase / {
      settle()
      name = attribute("name"); class = attribute("classname"); result = attribute("result"); bad = 0; reason = ""
    }
    /^      <failure / { bad = 1 }
    /^      <skipped / { reason = attribute("message") }
    END { settle(); print passed + 0, failed + 0, skipped + 0 }
  ' "$1"
}

passed=0 failed=0 skipped=0
count() {
  passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

for reports in "$@"; do
  if [[ ! -s $reports/ctest.xml ]]; then
    echo "FAILED   there is no $reports/ctest.xml" >&2
    count 0 1 0
    continue
  fi
  suite=$(basename "$(dirname "$reports")")
  while IFS=$'\t' read -r name status skip; do
    [[ -n $name ]] || continue
    if [[ $status == disabled || $skip == SKIP_* ]]; then
      echo "skipped  $suite/$name" >&2
      count 0 0 1
      continue
    fi
    p=0 f=0 s=0
    if [[ -s $reports/$name.xml ]]; then
      read -r p f s <<<"$(gtest_cases "$reports/$name.xml" "$suite/$name")"
    elif [[ $status == run ]]; then
      p=1
    fi
    if [[ $status != run ]]; then
      echo "FAILED   $suite/$name" >&2
      ((f > 0)) || f=1
    fi
    count "$p" "$f" "$s"
  done <<<"$(ctest_results "$reports/ctest.xml")"
done
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0 && passed > 0))
