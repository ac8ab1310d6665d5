# What a test of weft train puts in place of the C library's flock().
add_library(no_locks MODULE ${CMAKE_CURRENT_LIST_DIR}/no_locks.cc)
target_compile_options(no_locks PRIVATE -fno-sanitize=all)
target_link_options(no_locks PRIVATE -fno-sanitize=all)
add_dependencies(cli_tests no_locks)
target_compile_definitions(cli_tests PRIVATE WEFT_NO_LOCKS="$<TARGET_FILE:no_locks>")

# A conversation at a terminal; output that goes nowhere; names and the cache folder of models.
find_program(PYTHON3 python3 REQUIRED)
foreach(test terminal output names list)
  add_test(NAME cli.${test}
    COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/${test}_test.py $<TARGET_FILE:weft>)
  set_tests_properties(cli.${test} PROPERTIES LABELS cli TIMEOUT ${WEFT_TEST_SECONDS})
endforeach()
