# `wader serve` as clients meet it: their own npm packages, cases from the field, load, and hostile connections.
# Without node, or the packages of tests/npm, skipped; where CI is set, that is a failure.
find_program(NODE NAMES node nodejs)
set(api_dir ${CMAKE_CURRENT_LIST_DIR}/api)

# wader_api_test(NAME SCRIPT ARGUMENTS…): each starts its servers on free ports and ends them.
function(wader_api_test name script)
  if(NODE)
    set(command ${NODE} ${api_dir}/${script} $<TARGET_FILE:wader> ${ARGN})
  else()
    set(command sh -c "echo 'node is not installed (CONTRIBUTING.md)'; test -n \"$CI\" && exit 1; exit 77")
  endif()
  add_test(NAME ${name} COMMAND ${command})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 LABELS short TIMEOUT 300)
endfunction()

# Their budgets and bounds are those of the program itself, not of one beside a sanitizer.
if(WADER_SANITIZE)
  return()
endif()
wader_api_test(api_demo run.mjs demo)
wader_api_test(api_qwen run.mjs qwen)
wader_api_test(api_load load.mjs --seconds 20)
wader_api_test(api_hostile hostile.mjs)
# A measured bound of CPU time or of seconds must not be another test's fault.
set_tests_properties(api_load api_hostile PROPERTIES RUN_SERIAL TRUE)
