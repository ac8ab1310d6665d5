# Read by ctest. Adds a test for each suite of a GoogleTest program.
#
# PROGRAM     its path; FOLDER its label; LIST a file that keeps the names of its tests
# PROPERTIES  properties of each test
if(NOT EXISTS ${PROGRAM})
  add_test(${FOLDER}_tests_NOT_BUILT ${FOLDER}_tests_NOT_BUILT)
  return()
endif()
if(NOT EXISTS ${LIST} OR ${PROGRAM} IS_NEWER_THAN ${LIST})
  execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listed TIMEOUT 60
    COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "\n +[^\n]*" "" listed "\n${listed}")  # names of tests
  string(REGEX REPLACE "\\.( *#[^\n]*)?\n" "\n" listed "${listed}\n")
  file(WRITE ${LIST} "${listed}")
endif()
file(STRINGS ${LIST} suites REGEX "^[A-Za-z0-9_/]+$")
foreach(suite ${suites})
  add_test(${FOLDER}.${suite} ${PROGRAM} --gtest_filter=${suite}.*)
  # (support/summary.py reports the skipped tests of a suite in which others ran.)
  set_tests_properties(${FOLDER}.${suite} PROPERTIES LABELS ${FOLDER} ${PROPERTIES}
    SKIP_REGULAR_EXPRESSION "\\[  PASSED  \\] 0 tests")
endforeach()
