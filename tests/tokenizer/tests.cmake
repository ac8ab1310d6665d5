# Odd tokenizers beside Hugging Face's own package. Exit status 77: it isn't there.
find_program(PYTHON3 python3 REQUIRED)
add_test(NAME tokenizer.oracle COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/oracle_test.py
  $<TARGET_FILE:weft> ${CMAKE_SOURCE_DIR}/build/python-packages)
set_tests_properties(tokenizer.oracle PROPERTIES LABELS tokenizer SKIP_RETURN_CODE 77
  TIMEOUT ${WEFT_TEST_SECONDS})
