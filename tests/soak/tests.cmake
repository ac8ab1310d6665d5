# Streams go on while ranks are killed. Alone on the cores: ranks have deadlines of a second.
find_program(PYTHON3 python3 REQUIRED)
add_test(NAME soak.kills COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/soak.py
  $<TARGET_FILE:weft> synthetic:smollm2-135m:q4_1 --kills 6 --seconds 40 --clients 4)
add_test(NAME soak.pipeline COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/soak.py
  $<TARGET_FILE:weft> synthetic:smollm2-135m:q4_1 --kills 4 --seconds 40 --clients 4 --pp 2)
add_test(NAME soak.lookup COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/soak.py
  $<TARGET_FILE:weft> synthetic:smollm2-135m:q4_1 --kills 4 --seconds 40 --clients 4 --lookup)
add_test(NAME soak.stages COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/soak.py
  $<TARGET_FILE:weft> synthetic:smollm2-135m:q4_1 --kills 3 --seconds 40 --clients 6 --ranks 3 --pp 3
  --lookup)
set_tests_properties(soak.kills soak.pipeline soak.lookup soak.stages PROPERTIES TIMEOUT ${WEFT_TEST_SECONDS}
  LABELS soak RUN_SERIAL ON)
