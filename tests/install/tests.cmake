# The installed tree, the Debian packages and the tar; what they need is built with everything else.
find_program(PYTHON3 python3 REQUIRED)
if(NOT WEFT_SANITIZE)
  add_test(NAME install COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/install_test.py
    ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR})
  set_tests_properties(install PROPERTIES LABELS install TIMEOUT ${WEFT_TEST_SECONDS})
  # In roots of distributions, in which apt installs packages: takes minutes.
  foreach(test roots image)
    add_test(NAME install.${test} COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/${test}_test.py
      ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR} CONFIGURATIONS nightly)
    set_tests_properties(install.${test} PROPERTIES LABELS "install;fleet" TIMEOUT 3600
      SKIP_RETURN_CODE 77)
  endforeach()
endif()
