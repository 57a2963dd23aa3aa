# The dashboard's pages in Debian's Chromium, on `wader serve` and on a made-up server. Without node, Chromium or the
# packages of tests/npm, skipped; where CI is set, that is a failure. Not beside a sanitizer: they measure paint and frames.
if(WADER_SANITIZE)
  return()
endif()
wader_api_test(web ../web/run.mjs)
set_tests_properties(web PROPERTIES TIMEOUT 600 RUN_SERIAL TRUE)
