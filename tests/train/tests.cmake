# Event files, read by TensorBoard's own reader (requirements.txt, which tools/setup.sh installs
# into the folder below). Exit status 77: it is missing.
find_program(PYTHON3 python3 REQUIRED)
add_test(NAME train.tensorboard COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/tensorboard_test.py
  $<TARGET_FILE:train_tests> ${CMAKE_SOURCE_DIR}/build/python-packages)
set_tests_properties(train.tensorboard PROPERTIES LABELS train SKIP_RETURN_CODE 77
  TIMEOUT ${WEFT_TEST_SECONDS})

# Adapters, loaded by the package peft. Exit status 77: it is missing.
add_test(NAME train.peft COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/peft_test.py
  $<TARGET_FILE:weft> ${CMAKE_SOURCE_DIR}/build/python-packages)
set_tests_properties(train.peft PROPERTIES LABELS train SKIP_RETURN_CODE 77
  TIMEOUT ${WEFT_TEST_SECONDS})

# Supervised fine-tuning and losses over preferences, against TRL's curves; losses over vectors;
# rewards of completions; the evaluation with the lowest loss; what follows an update; averages of
# the weights.
foreach(test sft preference vector grpo best_step reports average)
  add_test(NAME train.${test} COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/${test}_test.py
    $<TARGET_FILE:weft>)
  set_tests_properties(train.${test} PROPERTIES LABELS train TIMEOUT ${WEFT_TEST_SECONDS})
endforeach()
