# Build rules shared by every folder: one static library a folder, warnings are errors.

get_filename_component(WEFT_ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
find_package(Threads REQUIRED)
add_library(weft_options INTERFACE)
target_compile_options(weft_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
  -Woverloaded-virtual -Werror -fno-math-errno -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")  # the fuzz preset; pragmas and flags are GCC's
  target_compile_options(weft_options INTERFACE -Wno-unknown-pragmas -Wno-unknown-warning-option)
endif()
target_include_directories(weft_options INTERFACE ${WEFT_ROOT}/src)
target_compile_definitions(weft_options INTERFACE WEFT_VERSION="${PROJECT_VERSION}")
# No test may take longer: a hang ends as a failure. An idle machine takes a tenth of it. The thread
# sanitizer slows down by 10 to 50.
set(WEFT_TEST_SECONDS 600)
if(WEFT_SANITIZE STREQUAL "thread")
  set(WEFT_TEST_SECONDS 1800)
  # The thread sanitizer does not know Asio's fences; the scheduler's lock orders the same.
  target_compile_definitions(weft_options INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
endif()

if(WEFT_SANITIZE)
  target_compile_options(weft_options INTERFACE -fsanitize=${WEFT_SANITIZE}
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(weft_options INTERFACE -fsanitize=${WEFT_SANITIZE})
endif()

if(WEFT_FUZZ)
  target_compile_options(weft_options INTERFACE -fsanitize=fuzzer-no-link -Wno-unknown-pragmas)
endif()

# Files of a folder are compiled together, several as one: a whole build then takes less than half
# the time, since what they include is read once. What it asks of them: names in their unnamed
# namespaces differ. Who changes one file often is quicker with -DWEFT_UNITY=OFF.
option(WEFT_UNITY "Compile several files of a folder as one" ON)
function(weft_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${WEFT_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  if(WEFT_UNITY)  # a class of one file may have members of types that are that file's own
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

# weft_library(FOLDER [DEPS...]): the library weft_FOLDER from all src/FOLDER/**/*.cc.
function(weft_library folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${WEFT_ROOT}/src/${folder}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/kernels/(vector|amx)/")  # compiled per instruction set
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(FILTER sources EXCLUDE REGEX "/tensor/encode/level_avx")
  endif()
  if(WEFT_LEAVE_OUT)
    list(FILTER sources EXCLUDE REGEX "${WEFT_LEAVE_OUT}")
  endif()
  if(NOT sources)
    add_library(weft_${folder} INTERFACE)
    target_link_libraries(weft_${folder} INTERFACE weft_options ${ARGN})
    return()
  endif()
  add_library(weft_${folder} STATIC ${sources})
  target_link_libraries(weft_${folder} PUBLIC weft_options ${ARGN})
  weft_unity(weft_${folder})
endfunction()

# Where tools/setup.sh puts lavapipe, the Vulkan driver of tests (tests/support/lavapipe.h).
if(DEFINED ENV{XDG_CACHE_HOME})
  set(cache_folder $ENV{XDG_CACHE_HOME})
else()
  set(cache_folder $ENV{HOME}/.cache)
endif()
set(WEFT_LAVAPIPE ${cache_folder}/weft/lavapipe CACHE PATH "Folder of the Vulkan driver of tests")

# weft_tests(FOLDER [DEPS...]): one GoogleTest program from tests/FOLDER/*_test.cc.
function(weft_tests folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  add_executable(${folder}_tests ${sources})
  target_link_libraries(${folder}_tests PRIVATE ${ARGN} weft_test_paths GTest::gtest_main)
  target_include_directories(${folder}_tests PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  # What they test is optimized; they themselves compile in three quarters of the time without.
  target_compile_options(${folder}_tests PRIVATE -O1)
  weft_unity(${folder}_tests)
  add_dependencies(${folder}_tests weft)
  # Tests of whole jobs have deadlines of a second: they do not share the cores with other tests.
  set(alone OFF)
  if(folder MATCHES "^(cluster|engine)$")
    set(alone ON)
  endif()
  set(lavapipe "")
  if(folder MATCHES "^(gpu|backend|engine|cli)$")
    set(lavapipe ENVIRONMENT WEFT_LAVAPIPE=${WEFT_LAVAPIPE}
      ENVIRONMENT_MODIFICATION LD_LIBRARY_PATH=path_list_prepend:${WEFT_LAVAPIPE}/lib)
  endif()
  gtest_discover_tests(${folder}_tests DISCOVERY_MODE PRE_TEST
    PROPERTIES TIMEOUT ${WEFT_TEST_SECONDS} LABELS ${folder} RUN_SERIAL ${alone} ${lavapipe})
endfunction()
