# Files for Slurm, ssh, Kubernetes and Ray, and the commands of their clients; a real Slurm of three
# nodes if it is installed; the pods of deploy/kubernetes as processes.
find_program(PYTHON3 python3 REQUIRED)
foreach(test submit odd kubernetes slurm deploy)
  add_test(NAME submit.${test} COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/${test}_test.py
    $<TARGET_FILE:weft> ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/build/python-packages)
  set_tests_properties(submit.${test} PROPERTIES LABELS submit TIMEOUT ${WEFT_TEST_SECONDS}
    SKIP_RETURN_CODE 77)
endforeach()
# A real Ray, from PyPI: minutes.
add_test(NAME submit.ray COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/ray_test.py
  $<TARGET_FILE:weft> ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/build/python-packages
  CONFIGURATIONS nightly)
set_tests_properties(submit.ray PROPERTIES LABELS submit TIMEOUT ${WEFT_TEST_SECONDS}
  SKIP_RETURN_CODE 77)
