# Tests in a virtual machine with a real RDMA stack (README.md). Exit status 77: not possible here.
find_program(PYTHON3 python3 REQUIRED)
# Other programs that run in the guest, beside weft and its tests.
foreach(program tiny_model connect_rounds)
  add_executable(${program} ${CMAKE_CURRENT_LIST_DIR}/${program}.cc)
  target_link_libraries(${program} PRIVATE weft_engine GTest::gtest)
  target_include_directories(${program} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
endforeach()

# guest_test(NAME SCRIPT SECONDS ARGUMENTS...): SCRIPT.guest.sh of this folder in the guest, for
# SECONDS at most on an idle machine, up to 8 times that on a slow one (guest.py); with ctest -C
# nightly (./test --nightly).
function(guest_test name script timeout)
  set(files)
  foreach(target weft tiny_model connect_rounds net_tests coll_tests)
    list(APPEND files --add $<TARGET_FILE:${target}>)
  endforeach()
  set(full_name rdma.${name})
  add_test(NAME ${full_name} COMMAND ${PYTHON3} ${CMAKE_SOURCE_DIR}/tests/rdma/guest.py ${files}
    --timeout ${timeout} --script ${CMAKE_SOURCE_DIR}/tests/rdma/${script}.guest.sh -- ${ARGN}
    CONFIGURATIONS nightly)
  math(EXPR outer "8 * ${timeout} + 300")
  set_tests_properties(${full_name} PROPERTIES LABELS rdma SKIP_RETURN_CODE 77 RUN_SERIAL ON
    TIMEOUT ${outer})
endfunction()
# A sanitized program would take minutes in software emulation.
if(NOT WEFT_SANITIZE)
  set(transports tcp)
  if(TARGET PkgConfig::IBVERBS)
    list(APPEND transports verbs)
    guest_test(links links 150 8 6 4)
    guest_test(links_long links 300 8 36 10)
  endif()
  guest_test(faults faults 200 --short ${transports})
  guest_test(faults_long faults 400 ${transports})
endif()
