# `weft plan --measure --hosts` over two hosts. Exit status 77: not as root.
find_program(PYTHON3 python3 REQUIRED)
add_test(NAME plan.measure_hosts
  COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/measure_hosts_test.py $<TARGET_FILE:weft>)
set_tests_properties(plan.measure_hosts PROPERTIES LABELS plan SKIP_RETURN_CODE 77
  TIMEOUT ${WEFT_TEST_SECONDS})
