# What README.md and docs/ say: commands and flags exist (flags_test.py), messages and codes are
# those of the sources (messages_test.py), computed speeds those of `weft plan` (figures_test.py),
# links and paths lead somewhere (links_test.py), and commands run as described (commands_test.py);
# rules_test.py checks that these tests detect errors.
find_program(PYTHON3 python3 REQUIRED)
add_test(NAME docs.flags COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/flags_test.py
  $<TARGET_FILE:weft> ${CMAKE_SOURCE_DIR})
add_test(NAME docs.messages COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/messages_test.py
  ${CMAKE_SOURCE_DIR})
add_test(NAME docs.figures COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/figures_test.py
  $<TARGET_FILE:weft> ${CMAKE_SOURCE_DIR})
add_test(NAME docs.links COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/links_test.py
  ${CMAKE_SOURCE_DIR})
add_test(NAME docs.rules COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/rules_test.py
  $<TARGET_FILE:weft>)
# Runs the commands as the pages have them.
if(NOT WEFT_SANITIZE)
  add_test(NAME docs.commands COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/commands_test.py
    $<TARGET_FILE:weft> ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/build/python-packages)
  set_tests_properties(docs.commands PROPERTIES LABELS docs TIMEOUT ${WEFT_TEST_SECONDS})
endif()
set_tests_properties(docs.flags docs.messages docs.figures docs.links docs.rules PROPERTIES LABELS docs
  TIMEOUT ${WEFT_TEST_SECONDS})
