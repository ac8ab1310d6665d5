# Tests in a virtual machine with a real RDMA stack (README.md). Exit status 77: not possible here.
add_executable(tiny_model ${CMAKE_CURRENT_LIST_DIR}/tiny_model.cc)
target_link_libraries(tiny_model PRIVATE weft_engine)
target_include_directories(tiny_model PRIVATE ${CMAKE_SOURCE_DIR}/tests)
# guest_test(NAME SCRIPT TIMEOUT ARGUMENTS...): a script of this folder in the guest.
function(guest_test name script timeout)
  add_test(NAME rdma.${name} COMMAND ${PYTHON3} ${CMAKE_SOURCE_DIR}/tests/rdma/guest.py
    --timeout ${timeout} --add $<TARGET_FILE:weft> --add $<TARGET_FILE:tiny_model>
    --add $<TARGET_FILE:net_tests> --add $<TARGET_FILE:coll_tests>
    --script ${CMAKE_SOURCE_DIR}/tests/rdma/${script}.guest.sh ${ARGN})
  math(EXPR outer "${timeout} + 30")
  set_tests_properties(rdma.${name} PROPERTIES LABELS rdma SKIP_RETURN_CODE 77 RUN_SERIAL ON
    TIMEOUT ${outer})
endfunction()
# Software emulation of a sanitized program would take minutes.
find_program(PYTHON3 python3 REQUIRED)
if(NOT WEFT_SANITIZE)
  guest_test(perftest perftest 60)
  guest_test(faults faults 120 tcp)
endif()
