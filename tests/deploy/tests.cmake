# Flags and metrics that the files of deploy/ name exist.
find_program(PYTHON3 python3 REQUIRED)
add_test(NAME deploy COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/deploy_test.py
  $<TARGET_FILE:weft> ${CMAKE_SOURCE_DIR})
set_tests_properties(deploy PROPERTIES LABELS deploy TIMEOUT ${WEFT_TEST_SECONDS})
