# The kernels on another architecture, under an emulator: minutes, and so of ./test --nightly.
find_program(PYTHON3 python3 REQUIRED)
add_test(NAME aarch64.kernels COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/cross_test.py
  ${CMAKE_BINARY_DIR}/aarch64 CONFIGURATIONS nightly)
set_tests_properties(aarch64.kernels PROPERTIES LABELS kernels SKIP_RETURN_CODE 77
  TIMEOUT ${WEFT_TEST_SECONDS})
