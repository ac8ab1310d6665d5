# The kernels, and a model's steps, on another architecture, under an emulator: minutes, and so of
# ./test --nightly. They share a build folder.
find_program(PYTHON3 python3 REQUIRED)
function(cross_test name)
  add_test(NAME aarch64.${name} COMMAND ${PYTHON3} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/cross_test.py
    ${CMAKE_BINARY_DIR}/aarch64 ${name} ${ARGN} CONFIGURATIONS nightly)
  set_tests_properties(aarch64.${name} PROPERTIES LABELS kernels SKIP_RETURN_CODE 77
    RESOURCE_LOCK aarch64 TIMEOUT ${WEFT_TEST_SECONDS})
endfunction()
cross_test(kernels)
cross_test(abacus $<TARGET_FILE:weft> ${CMAKE_SOURCE_DIR}/models/abacus/model.gguf)
