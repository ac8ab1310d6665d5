add_dependencies(fleet_tests cluster_rank)
target_compile_definitions(fleet_tests PRIVATE CLUSTER_RANK="$<TARGET_FILE:cluster_rank>")
# Hosts as network namespaces with cables between them. Exit status 77: not run as root.
foreach(test up ssh odd recable secret restart paths unreached tap chain elastic)
  add_test(NAME fleet.${test}
    COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/${test}_test.py $<TARGET_FILE:weft>
      $<TARGET_FILE:tiny_model>)
  set_tests_properties(fleet.${test} PROPERTIES LABELS fleet SKIP_RETURN_CODE 77
    TIMEOUT ${WEFT_TEST_SECONDS})
endforeach()
# docs/two-mini-pcs.md in roots of distributions, with packages from apt: takes minutes.
if(NOT WEFT_SANITIZE)
  add_test(NAME fleet.page COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/page_test.py
    ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR} CONFIGURATIONS nightly)
  set_tests_properties(fleet.page PROPERTIES LABELS fleet TIMEOUT 3600 SKIP_RETURN_CODE 77)
endif()
