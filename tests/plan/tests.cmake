# `weft plan --measure --hosts` over two hosts. Exit status 77: not as root.
find_program(PYTHON3 python3 REQUIRED)
add_test(NAME plan.measure_hosts
  COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/measure_hosts_test.py $<TARGET_FILE:weft>)
set_tests_properties(plan.measure_hosts PROPERTIES LABELS plan SKIP_RETURN_CODE 77
  TIMEOUT ${WEFT_TEST_SECONDS})
# `weft plan --measure --local 2`: ranks don't share a core. Exit status 77: there is one core.
add_test(NAME plan.measure_cores CONFIGURATIONS nightly
  COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/measure_cores_test.py $<TARGET_FILE:weft>)
set_tests_properties(plan.measure_cores PROPERTIES LABELS plan SKIP_RETURN_CODE 77 RUN_SERIAL TRUE
  TIMEOUT ${WEFT_TEST_SECONDS})
# Some of what bench/plan.py compares, by one rank. Other work on the machine moves measure and run
# alike, but not together: only a prediction that is wrong by half in the middle fails.
add_test(NAME plan.against_this_machine CONFIGURATIONS nightly
  COMMAND ${PYTHON3} ${CMAKE_SOURCE_DIR}/bench/plan.py $<TARGET_FILE:weft> --only one
    --bound 0.5)
set_tests_properties(plan.against_this_machine PROPERTIES LABELS plan RUN_SERIAL TRUE
  TIMEOUT ${WEFT_TEST_SECONDS})
