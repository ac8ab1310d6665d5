# Build rules shared by every folder: one static library a folder, warnings are errors.

get_filename_component(WEFT_ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
find_package(Threads REQUIRED)
add_library(weft_options INTERFACE)
target_compile_options(weft_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
  -Woverloaded-virtual -Werror -fno-math-errno -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")  # the fuzz preset; pragmas and flags are GCC's
  target_compile_options(weft_options INTERFACE -Wno-unknown-pragmas -Wno-unknown-warning-option
    -Wno-missing-braces)
endif()
target_include_directories(weft_options INTERFACE ${WEFT_ROOT}/src)
target_compile_definitions(weft_options INTERFACE WEFT_VERSION="${PROJECT_VERSION}")
# No test may take longer: a hang ends as a failure. An idle machine takes a tenth of it. Under the
# address sanitizer a server's test of 33 s was still answering after 600; the thread sanitizer slows
# down by 10 to 50.
set(WEFT_TEST_SECONDS 600)
if(WEFT_SANITIZE STREQUAL "thread")
  set(WEFT_TEST_SECONDS 1800)
  # The thread sanitizer does not know Asio's fences; the scheduler's lock orders the same.
  target_compile_definitions(weft_options INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
elseif(WEFT_SANITIZE)
  set(WEFT_TEST_SECONDS 1200)
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
set(WEFT_UNITY_FILES 16)
# Compiled by themselves: what tests/backend/strange has in place of (objects of their own, so that a
# linker can leave them), what has flags of its own, what defines functions of verbs.h, and what
# includes toml++, which takes seconds.
set(WEFT_ALONE "/backend/device\\.cc$|/backend/cpu/memory\\.cc$|/tensor/encode/level_|/engine/(logits_row|lookup|sampler)\\.cc$|/net/verbs_calls\\.cc$|/fleet/cluster_file\\.cc$|/support/paths\\.cc$")
# weft_unity(OUT TARGET ROOT SOURCES...): what TARGET compiles in place of SOURCES, which are below
# ROOT, a folder that it includes from: files that name them from there, and no place of this clone,
# so that a compiler cache knows them in another one (CMake's own unity builds have whole paths).
function(weft_unity out target root)
  set(files "")
  set(text "")
  set(count 0)
  foreach(source ${ARGN})
    if(NOT WEFT_UNITY OR source MATCHES "${WEFT_ALONE}")
      list(APPEND files ${source})
      continue()
    endif()
    file(RELATIVE_PATH name ${root} ${source})
    string(APPEND text "#include \"${name}\"\n")
    math(EXPR count "${count} + 1")
    math(EXPR last "${count} % ${WEFT_UNITY_FILES}")
    if(last EQUAL 0)
      weft_unity_file(${target}/to_${count}.cc "${text}")
      set(text "")
    endif()
  endforeach()
  if(text)
    weft_unity_file(${target}/to_${count}.cc "${text}")
  endif()
  set(${out} ${files} PARENT_SCOPE)
endfunction()
# To the caller's `files`, too.
function(weft_unity_file name text)
  set(file ${CMAKE_BINARY_DIR}/unity/${name})
  file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
  # A class of one file may have members of types that are that file's own.
  set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS -Wno-subobject-linkage)
  set(files ${files} ${file} PARENT_SCOPE)
endfunction()

# Of code that waits for people, files, networks or kernels: a third less time to compile than -O3
# takes.
function(weft_light target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
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
  if(WEFT_LEAVE_OUT_${folder})
    list(FILTER sources EXCLUDE REGEX "${WEFT_LEAVE_OUT_${folder}}")
  endif()
  if(WEFT_ONLY_${folder})
    list(FILTER sources INCLUDE REGEX "${WEFT_ONLY_${folder}}")
  endif()
  if(NOT sources)
    add_library(weft_${folder} INTERFACE)
    target_link_libraries(weft_${folder} INTERFACE weft_options ${ARGN})
    return()
  endif()
  weft_unity(sources weft_${folder} ${WEFT_ROOT}/src ${sources})
  add_library(weft_${folder} STATIC ${sources})
  target_link_libraries(weft_${folder} PUBLIC weft_options ${ARGN})
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
  weft_unity(sources ${folder}_tests ${CMAKE_SOURCE_DIR}/tests ${sources})
  if(WEFT_SANITIZE STREQUAL "thread")
    list(APPEND sources ${CMAKE_SOURCE_DIR}/tests/support/thread_sanitizer.cc)
  endif()
  add_executable(${folder}_tests ${sources})
  target_link_libraries(${folder}_tests PRIVATE ${ARGN} weft_test_paths GTest::gtest_main)
  target_include_directories(${folder}_tests PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  # What they test is optimized; they themselves compile in three quarters of the time without.
  target_compile_options(${folder}_tests PRIVATE -O1)
  add_dependencies(${folder}_tests weft)
  # Tests of whole jobs have several processes each, and deadlines: one of them at a time, beside
  # other tests.
  set(alone "")
  if(folder MATCHES "^(cluster|engine)$")
    set(alone RESOURCE_LOCK whole_job COST 100)
  endif()
  # (One variable each: GoogleTest's module of CMake 3.25 takes a list of two for two properties.)
  set(lavapipe "")
  if(folder MATCHES "^(gpu|vulkan|backend|engine|train|cli)$")
    set(lavapipe ENVIRONMENT WEFT_LAVAPIPE=${WEFT_LAVAPIPE}
      ENVIRONMENT_MODIFICATION LD_LIBRARY_PATH=path_list_prepend:${WEFT_LAVAPIPE}/lib)
  endif()
  gtest_discover_tests(${folder}_tests DISCOVERY_MODE PRE_TEST
    PROPERTIES TIMEOUT ${WEFT_TEST_SECONDS} LABELS ${folder} ${alone} ${lavapipe})
endfunction()
