# The control plane in a simulated kernel. The sanitizers replace the same functions as libc.cc.
if(NOT WEFT_SANITIZE)
  add_executable(sim_tests sim/cluster_sim_test.cc sim/world.cc sim/sums.cc sim/answers.cc sim/training.cc
    sim/kernel.cc sim/network.cc sim/libc.cc)
  target_include_directories(sim_tests PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(sim_tests PRIVATE weft_train GTest::gtest_main)
  gtest_discover_tests(sim_tests DISCOVERY_MODE PRE_TEST PROPERTIES LABELS sim TIMEOUT ${WEFT_TEST_SECONDS})
endif()
