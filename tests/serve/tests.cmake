# The API, asked by its users' own packages (requirements.txt, which tools/setup.sh installs into the
# folder below). Exit status 77: they aren't there.
find_program(PYTHON3 python3 REQUIRED)
set(client_packages ${CMAKE_SOURCE_DIR}/build/python-packages)
file(GLOB client_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*_test.py)
foreach(script ${client_tests})
  get_filename_component(name ${script} NAME_WE)
  string(REPLACE "_test" "" name ${name})
  add_test(NAME serve.${name} COMMAND ${PYTHON3} ${script} $<TARGET_FILE:weft> ${client_packages})
  set_tests_properties(serve.${name} PROPERTIES LABELS serve SKIP_RETURN_CODE 77
    TIMEOUT ${WEFT_TEST_SECONDS})
endforeach()
