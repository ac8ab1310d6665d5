# weft with a different device (strange/device.cc), and tests of whole jobs on it: the test programs
# of weft, started with this one.
add_executable(weft_strange $<TARGET_OBJECTS:weft> ${CMAKE_CURRENT_LIST_DIR}/strange/device.cc
  ${CMAKE_CURRENT_LIST_DIR}/strange/memory.cc)
target_link_libraries(weft_strange PRIVATE $<TARGET_PROPERTY:weft,LINK_LIBRARIES>)
# strange_test(NAME FILTER [CONFIGURATIONS nightly]): runs tests of cli_tests with it.
function(strange_test name filter)
  add_test(NAME strange.${name} COMMAND cli_tests --gtest_filter=${filter} ${ARGN})
  set(seconds ${WEFT_TEST_SECONDS})
  if("nightly" IN_LIST ARGN)
    set(seconds 3600)
  endif()
  set_tests_properties(strange.${name} PROPERTIES LABELS backend TIMEOUT ${seconds}
    ENVIRONMENT WEFT_TEST_PROGRAM=$<TARGET_FILE:weft_strange>)
endfunction()
strange_test(layouts "Layouts.F32OverTcp:Layouts.ChunksOfThePrompt:Feed.OnlyRankZeroReads:\
Recovery.ElasticDownToOneRank")
strange_test(training "TrainOptimizer.CheckpointsGoOn")
strange_test(jobs "Lora.*:Drafts.*:ExpertRuns.*:Recovery*.*:SmolLm2.*:Layouts*:Feed.*" CONFIGURATIONS nightly)
strange_test(every_training "Train*:ExpertsCli.*:GradTypeCli.*:Lora*" CONFIGURATIONS nightly)
