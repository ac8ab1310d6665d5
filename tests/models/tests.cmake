# The model of models/: its questions, its exam, and that every layout answers alike. The model is
# part of the tree, so these tests need no download and never skip.
find_program(PYTHON3 python3 REQUIRED)
add_test(NAME models.abacus COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/abacus_test.py
  $<TARGET_FILE:weft> ${CMAKE_SOURCE_DIR}/models/abacus)
set_tests_properties(models.abacus PROPERTIES LABELS models TIMEOUT ${WEFT_TEST_SECONDS})
