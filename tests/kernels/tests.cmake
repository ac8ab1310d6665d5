# Instructions and functions in the objects of each instruction set. Exit status 77: no objdump.
find_program(PYTHON3 python3 REQUIRED)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT WEFT_SANITIZE)
  set(objects "")
  foreach(set avx2 avxvnni avx512)
    if(TARGET weft_kernels_${set})  # WEFT_CPU_LEVELS=native builds one or two
      list(APPEND objects "${set}=$<JOIN:$<TARGET_OBJECTS:weft_kernels_${set}>,,>")
    endif()
  endforeach()
  add_test(NAME kernels.instructions
    COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/instructions_test.py ${objects})
  set_tests_properties(kernels.instructions PROPERTIES LABELS kernels SKIP_RETURN_CODE 77
    TIMEOUT ${WEFT_TEST_SECONDS})
endif()
