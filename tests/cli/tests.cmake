# Replaces the C library's flock() in a test of weft train.
add_library(no_locks MODULE ${CMAKE_CURRENT_LIST_DIR}/no_locks.cc)
target_compile_options(no_locks PRIVATE -fno-sanitize=all)
target_link_options(no_locks PRIVATE -fno-sanitize=all)
add_dependencies(cli_tests no_locks)
target_compile_definitions(cli_tests PRIVATE WEFT_NO_LOCKS="$<TARGET_FILE:no_locks>")

# Replaces pthread_create() in a test of threads that the system refuses.
add_library(few_threads MODULE ${CMAKE_CURRENT_LIST_DIR}/few_threads.cc)
target_compile_options(few_threads PRIVATE -fno-sanitize=all)
target_link_options(few_threads PRIVATE -fno-sanitize=all)
target_link_libraries(few_threads PRIVATE ${CMAKE_DL_LIBS})

# A conversation at a terminal; SIGHUP to a supervised server; output that can't be written; stopped
# readers; names and the model cache.
find_program(PYTHON3 python3 REQUIRED)
set(cli_tests terminal hangup output stopped_reader names list completion former_flags jobs
    sampling_flags forbidden_calls)
if(LIBEDIT_FOUND)
  list(APPEND cli_tests lines)  # what libedit does with them
endif()
foreach(test ${cli_tests})
  add_test(NAME cli.${test}
    COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/${test}_test.py $<TARGET_FILE:weft>)
  set_tests_properties(cli.${test} PROPERTIES LABELS cli TIMEOUT ${WEFT_TEST_SECONDS})
endforeach()

# A sanitizer's own pthread_create starts before the library's.
if(NOT WEFT_SANITIZE)
  add_test(NAME cli.few_threads
    COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/few_threads_test.py $<TARGET_FILE:weft>
      $<TARGET_FILE:few_threads>)
  set_tests_properties(cli.few_threads PROPERTIES LABELS cli TIMEOUT ${WEFT_TEST_SECONDS})
endif()

# Ranks of two builds.
add_test(NAME cli.builds COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/builds_test.py
  $<TARGET_FILE:weft> $<TARGET_FILE:tiny_model>)
set_tests_properties(cli.builds PROPERTIES LABELS cli TIMEOUT ${WEFT_TEST_SECONDS})

# 128 ranks on one machine.
add_test(NAME cli.many_ranks CONFIGURATIONS nightly
  COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/many_ranks_test.py $<TARGET_FILE:weft>
    ${CMAKE_SOURCE_DIR}/models/abacus)
set_tests_properties(cli.many_ranks PROPERTIES LABELS cli TIMEOUT 3600 RUN_SERIAL TRUE)

# ssh over a bridge that loses large packets, in network namespaces. Exit status 77: not as root.
add_test(NAME cli.ssh_path
  COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/ssh_path_test.py $<TARGET_FILE:weft>)
set_tests_properties(cli.ssh_path PROPERTIES LABELS cli SKIP_RETURN_CODE 77
  TIMEOUT ${WEFT_TEST_SECONDS})

# CPUs without AVX-512, and without AVX, in an emulator. Exit status 77: no emulator.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" AND NOT WEFT_SANITIZE)
  add_test(NAME cli.old_processor
    COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/old_processor_test.py $<TARGET_FILE:weft>
      $<TARGET_FILE:tiny_model>)
  set_tests_properties(cli.old_processor PROPERTIES LABELS cli SKIP_RETURN_CODE 77
    TIMEOUT ${WEFT_TEST_SECONDS})
endif()
