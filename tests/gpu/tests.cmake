# Shaders of gpu_tests, compiled like those of src/shaders.
if(weft_vulkan)
  set(test_shaders "")
  set(shader_numbers TRUE)
  file(GLOB shaders CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/gpu/shaders/*.comp)
  foreach(shader ${shaders})
    get_filename_component(name ${shader} NAME_WE)
    weft_shader(${shader} test_${name})
    list(APPEND test_shaders ${shader_out}/test_${name}.inc)
  endforeach()
  set(shader_numbers FALSE)
  add_custom_target(gpu_test_shaders DEPENDS ${test_shaders})
  add_dependencies(gpu_tests gpu_test_shaders)
  target_include_directories(gpu_tests PRIVATE ${shader_out})
  target_compile_definitions(gpu_tests PRIVATE $<$<BOOL:${WEFT_SMALL_MATRIX_UNITS}>:WEFT_SMALL_MATRIX_UNITS>)
endif()

# Stand-ins for the libraries of CUDA and HIP, which run kernels on the processor (standin/). Their
# header is precompiled: the compiler takes emulated.h.gch if the flags are those of its users.
set(standin_folder ${CMAKE_BINARY_DIR}/standin)
set(emulated ${standin_folder}/emulated.h)
add_custom_command(OUTPUT ${emulated}.gch DEPENDS ${CMAKE_CURRENT_LIST_DIR}/standin/emulated.h
  COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_CURRENT_LIST_DIR}/standin/emulated.h ${emulated}
  COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -O1 -w -fPIC -fno-strict-aliasing -ffp-contract=off
    -DWEFT_EMULATED -x c++-header ${emulated} -o ${emulated}.gch
  COMMENT "Precompiling emulated.h")
add_custom_target(standin_header DEPENDS ${emulated}.gch)
function(standin target source file)
  add_library(${target} MODULE ${CMAKE_SOURCE_DIR}/tests/gpu/standin/${source})
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${file} SUFFIX ""
    LIBRARY_OUTPUT_DIRECTORY ${standin_folder})
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Werror -fno-sanitize=all)
  target_compile_definitions(${target} PRIVATE ${ARGN}
    STANDIN_HEADER="${emulated}"
    STANDIN_CACHE="${standin_folder}/compiled" STANDIN_CXX="${CMAKE_CXX_COMPILER}")
  target_link_options(${target} PRIVATE -fno-sanitize=all)
  target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS} Threads::Threads)
  add_dependencies(standin ${target})
endfunction()
add_custom_target(standin DEPENDS standin_header)
standin(standin_cuda driver.cc libcuda.so.1)
standin(standin_nvrtc compiler.cc libnvrtc.so.12)
standin(standin_hip driver.cc libamdhip64.so.6 STANDIN_HIP)
standin(standin_hiprtc compiler.cc libhiprtc.so.6 STANDIN_HIP)
# standin_test(NAME API WORDS...): a test on the stand-in of an API.
function(standin_test name api)
  add_test(NAME ${name}.${api} ${ARGN})
  set_tests_properties(${name}.${api} PROPERTIES LABELS gpu TIMEOUT ${WEFT_TEST_SECONDS}
    ENVIRONMENT "WEFT_TEST_API=${api};XDG_CACHE_HOME=${standin_folder}"
    ENVIRONMENT_MODIFICATION LD_LIBRARY_PATH=path_list_prepend:${standin_folder})
endfunction()
if(weft_vulkan)
  add_dependencies(gpu_tests standin)
  target_compile_definitions(gpu_tests PRIVATE
    STANDIN_HEADER="${emulated}" STANDIN_CXX="${CMAKE_CXX_COMPILER}")
  standin_test(gpu.standin cuda COMMAND gpu_tests --gtest_filter=GpuDevice.*:Native*)
  standin_test(gpu.standin hip COMMAND gpu_tests --gtest_filter=GpuDevice.*:Native*
    CONFIGURATIONS nightly)
endif()

# Every kernel, compiled for GPUs that are not here: by night, 20 minutes of CPU time.
if(weft_shaders)
  add_executable(spirv_texts ${CMAKE_CURRENT_LIST_DIR}/spirv_texts.cc)
  target_link_libraries(spirv_texts PRIVATE weft_gpu weft_shaders)
  find_program(PYTHON3 python3 REQUIRED)
  add_test(NAME gpu.compile CONFIGURATIONS nightly
    COMMAND ${PYTHON3} ${CMAKE_CURRENT_LIST_DIR}/compile_test.py $<TARGET_FILE:spirv_texts>)
  math(EXPR compile_seconds "12 * ${WEFT_TEST_SECONDS}")
  set_tests_properties(gpu.compile PROPERTIES LABELS gpu SKIP_RETURN_CODE 77
    TIMEOUT ${compile_seconds})
endif()
