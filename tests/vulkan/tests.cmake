# Whole jobs on a Vulkan device. Exit status 77: there is none.
find_program(PYTHON3 python3 REQUIRED)
add_test(NAME vulkan.jobs
  COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/jobs_test.py $<TARGET_FILE:weft>)
set_tests_properties(vulkan.jobs PROPERTIES LABELS vulkan SKIP_RETURN_CODE 77 RUN_SERIAL ON
  TIMEOUT ${WEFT_TEST_SECONDS})
