# Checks of the code's form (tidy.py), and whether each check works (tidy_test.py).
find_program(PYTHON3 python3 REQUIRED)
add_test(NAME tidy COMMAND ${PYTHON3} ${CMAKE_SOURCE_DIR}/tests/tidy/tidy.py ${CMAKE_SOURCE_DIR})
add_test(NAME tidy_rules COMMAND ${PYTHON3} ${CMAKE_SOURCE_DIR}/tests/tidy/tidy_test.py)
# A build folder uses packages and compilers that were installed after it was made.
add_test(NAME configure COMMAND ${PYTHON3} ${CMAKE_SOURCE_DIR}/tests/tidy/configure_test.py)
# The last line of ./test has the same counts as ctest.
add_test(NAME summary COMMAND ${PYTHON3} ${CMAKE_SOURCE_DIR}/tests/tidy/summary_test.py)
set_tests_properties(tidy tidy_rules configure summary PROPERTIES LABELS tidy TIMEOUT ${WEFT_TEST_SECONDS})
# Only an optimised build inlines what must be inlined.
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_test(NAME isa_symbols COMMAND ${CMAKE_CURRENT_LIST_DIR}/isa_symbols.sh
    ${CMAKE_BINARY_DIR}/src/CMakeFiles)
  set_tests_properties(isa_symbols PROPERTIES LABELS tidy)
endif()
