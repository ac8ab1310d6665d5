# Tests in a virtual machine with a real RDMA stack (README.md). Exit status 77: not possible here.
find_program(PYTHON3 python3 REQUIRED)
# What runs in it beside weft and its tests.
foreach(program tiny_model connect_rounds)
  add_executable(${program} ${CMAKE_CURRENT_LIST_DIR}/${program}.cc)
  target_link_libraries(${program} PRIVATE weft_engine GTest::gtest)
  target_include_directories(${program} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
endforeach()

# guest_test(NAME TIMEOUT ARGUMENTS...): NAME.guest.sh of this folder in the guest.
function(guest_test name timeout)
  set(files)
  foreach(target weft tiny_model connect_rounds net_tests coll_tests)
    list(APPEND files --add $<TARGET_FILE:${target}>)
  endforeach()
  set(full_name rdma.${name})
  add_test(NAME ${full_name} COMMAND ${PYTHON3} ${CMAKE_SOURCE_DIR}/tests/rdma/guest.py ${files}
    --timeout ${timeout} --script ${CMAKE_SOURCE_DIR}/tests/rdma/${name}.guest.sh ${ARGN})
  math(EXPR outer "${timeout} + 30")
  set_tests_properties(${full_name} PROPERTIES LABELS rdma SKIP_RETURN_CODE 77 RUN_SERIAL ON
    TIMEOUT ${outer})
endfunction()
# A sanitized program would take minutes in software emulation.
if(NOT WEFT_SANITIZE)
  if(TARGET PkgConfig::IBVERBS)
    guest_test(links 150)
    guest_test(faults 200 tcp verbs)
  else()
    guest_test(faults 200 tcp)
  endif()
endif()
