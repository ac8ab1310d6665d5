# The web page in headless Chromium: against a scripted server, and against the program.
# Exit status 77: there is no Chromium.
find_program(PYTHON3 python3 REQUIRED)
# Sanitizers check nothing in a page, and make the program slower than a user would wait.
if(NOT WEFT_SANITIZE)
  foreach(name page continue tabs full)
    add_test(NAME web.${name} COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/${name}_test.py)
  endforeach()
  add_test(NAME web.live
    COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/live_test.py $<TARGET_FILE:weft>)
  set_tests_properties(web.page web.continue web.tabs web.full web.live PROPERTIES LABELS web
    SKIP_RETURN_CODE 77 TIMEOUT ${WEFT_TEST_SECONDS})
  # A browser and a cluster want both cores.
  set_tests_properties(web.live PROPERTIES RUN_SERIAL ON)
endif()
