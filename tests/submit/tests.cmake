# Files for Slurm, ssh, Kubernetes and Ray, and what their clients are asked; a real Slurm of three
# nodes where that is installed.
find_program(PYTHON3 python3 REQUIRED)
foreach(test submit slurm)
  add_test(NAME submit.${test} COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/${test}_test.py
    $<TARGET_FILE:weft> ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/build/python-packages)
  set_tests_properties(submit.${test} PROPERTIES LABELS submit TIMEOUT ${WEFT_TEST_SECONDS}
    SKIP_RETURN_CODE 77)
endforeach()
