# The program whose ranks the cluster tests start, stop and kill.
add_executable(cluster_rank ${CMAKE_CURRENT_LIST_DIR}/rank_program.cc)
target_include_directories(cluster_rank PRIVATE ${CMAKE_SOURCE_DIR}/tests)
target_link_libraries(cluster_rank PRIVATE weft_cluster weft_coll)
add_dependencies(cluster_tests cluster_rank)
target_compile_definitions(cluster_tests PRIVATE CLUSTER_RANK="$<TARGET_FILE:cluster_rank>")
# The list of files behind the protocol hash, and the hash.
find_program(PYTHON3 python3 REQUIRED)
add_test(NAME cluster.protocol COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/protocol_test.py)
set_tests_properties(cluster.protocol PROPERTIES LABELS cluster TIMEOUT ${WEFT_TEST_SECONDS})
