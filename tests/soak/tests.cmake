# Streams go on while ranks are killed. Alone on the cores: ranks have deadlines of a second.
find_program(PYTHON3 python3 REQUIRED)
# soak_test(NAME KILLS WORDS...): with ctest -C nightly (./test --nightly), a short one and one of ten
# times as many faults.
function(soak_test name kills)
  set(command ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/soak.py $<TARGET_FILE:weft>
    synthetic:smollm2-135m:q4_1 ${ARGN})
  math(EXPR many "10 * ${kills}")
  add_test(NAME soak.${name} COMMAND ${command} --kills ${kills} --seconds 40
    CONFIGURATIONS nightly)
  add_test(NAME soak.${name}_long COMMAND ${command} --kills ${many} --seconds 400
    CONFIGURATIONS nightly)
  set_tests_properties(soak.${name} PROPERTIES TIMEOUT ${WEFT_TEST_SECONDS})
  set_tests_properties(soak.${name}_long PROPERTIES TIMEOUT 3600)
  set_tests_properties(soak.${name} soak.${name}_long PROPERTIES LABELS soak RUN_SERIAL ON)
endfunction()
soak_test(kills 3 --clients 4)
soak_test(pipeline 2 --clients 4 --pp 2)
soak_test(lookup 2 --clients 4 --prompt-lookup)
soak_test(stages 2 --clients 6 --ranks 3 --pp 3 --prompt-lookup)
