# Loads folders written by Weft into transformers. Exit status 77: transformers is not installed.
find_program(PYTHON3 python3 REQUIRED)
add_test(NAME model_files.hf_export COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/hf_export_test.py
  $<TARGET_FILE:model_files_tests> $<TARGET_FILE:weft> ${CMAKE_SOURCE_DIR}/build/python-packages)
set_tests_properties(model_files.hf_export PROPERTIES LABELS model_files SKIP_RETURN_CODE 77
  TIMEOUT ${WEFT_TEST_SECONDS})
