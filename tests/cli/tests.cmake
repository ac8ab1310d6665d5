# What a test of weft train puts in place of the C library's flock().
add_library(no_locks MODULE ${CMAKE_CURRENT_LIST_DIR}/no_locks.cc)
target_compile_options(no_locks PRIVATE -fno-sanitize=all)
target_link_options(no_locks PRIVATE -fno-sanitize=all)
add_dependencies(cli_tests no_locks)
target_compile_definitions(cli_tests PRIVATE WEFT_NO_LOCKS="$<TARGET_FILE:no_locks>")

# A conversation at a terminal.
find_program(PYTHON3 python3 REQUIRED)
add_test(NAME cli.terminal
  COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/terminal_test.py $<TARGET_FILE:weft>)
set_tests_properties(cli.terminal PROPERTIES LABELS cli TIMEOUT ${WEFT_TEST_SECONDS})
