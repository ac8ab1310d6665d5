# Build rules shared by every folder: one static library per folder, with warnings as errors.

include(cpu_levels)
get_filename_component(WEFT_ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
find_package(Threads REQUIRED)
add_library(weft_options INTERFACE)
target_compile_options(weft_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
  -Woverloaded-virtual -Werror -fno-math-errno -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")  # the fuzz preset; pragmas and flags are GCC's
  target_compile_options(weft_options INTERFACE -Wno-unknown-pragmas -Wno-unknown-warning-option
    -Wno-missing-braces -Wno-shadow)  # Clang 14 reports names of 'using enum' as shadowed
  # Boost 1.74 looks for Clang's former header of coroutines only.
  target_compile_definitions(weft_options INTERFACE BOOST_ASIO_HAS_CO_AWAIT
    BOOST_ASIO_HAS_STD_COROUTINE)
endif()
# A build without a compiler launcher (ccache) is taken to be a user's: a newer compiler's warning
# does not end it. GCC collects its garbage later: 7 % less time for 250 MB more a job.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # GCC 12 warns of string comparisons in precompiled headers.
  target_compile_options(weft_options INTERFACE -Wno-error -Wno-stringop-overread)
  cmake_host_system_information(RESULT memory_mib QUERY TOTAL_PHYSICAL_MEMORY)
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  math(EXPR job_mib "${memory_mib} / ${cores}")
  if(job_mib GREATER 1800)
    target_compile_options(weft_options INTERFACE --param=ggc-min-heapsize=524288)
  endif()
endif()
target_include_directories(weft_options INTERFACE ${WEFT_ROOT}/src)
target_compile_definitions(weft_options INTERFACE WEFT_VERSION="${PROJECT_VERSION}")
# Limit per test: a hang becomes a failure. Tests on an idle machine take a tenth of it. With the
# address sanitizer, a server's test of 33 s had not ended after 600 s; the thread sanitizer slows
# down by 10 to 50.
set(WEFT_TEST_SECONDS 600)
if(WEFT_SANITIZE STREQUAL "thread")
  set(WEFT_TEST_SECONDS 1800)
  # The thread sanitizer does not understand Asio's fences; the scheduler's lock orders the same
  # accesses.
  target_compile_definitions(weft_options INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
elseif(WEFT_SANITIZE)
  set(WEFT_TEST_SECONDS 1200)
endif()

# (With checks, GCC 12 reports members of std::regex as uninitialized.)
if(WEFT_SANITIZE)
  target_compile_options(weft_options INTERFACE -fsanitize=${WEFT_SANITIZE}
    -fno-sanitize-recover=all -fno-omit-frame-pointer
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
    # A constant JSON object that is read at a key which it lacks has undefined behavior.
    "-DJSON_ASSERT(x)=((x)?void(0):__builtin_trap())")
  target_link_options(weft_options INTERFACE -fsanitize=${WEFT_SANITIZE})
endif()

if(WEFT_FUZZ)  # (Clang 14 cannot write the data of -fsanitize=function beside coroutines.)
  target_compile_options(weft_options INTERFACE -fsanitize=fuzzer-no-link -fno-sanitize=function)
endif()

# Compiles several files of a folder as one unit, because they include the same headers; a whole
# build takes less than half the time. Files with equal local names go to different units.
# -DWEFT_UNITY=OFF compiles each file alone, which is faster while one file changes often.
option(WEFT_UNITY "Compile several files of a folder as one" ON)
set(WEFT_UNITY_FILES 16)
# Files that compile alone: files that tests/backend/strange replaces (a linker omits whole objects
# only), files with their own flags, the functions of verbs.h, and the file that includes toml++,
# which takes seconds to parse.
set(WEFT_ALONE "/backend/device\\.cc$|/backend/cpu/memory\\.cc$|/tensor/encode/level_|/engine/(drafts/prompt_lookup|sampling/(logits_row|sampler|weigh))\\.cc$|/net/verbs_calls\\.cc$|/fleet/cluster_file\\.cc$|/support/paths\\.cc$")
# weft_local_names(OUT SOURCE): the names of functions, types and constants that the unnamed
# namespaces of SOURCE define without indentation.
function(weft_local_names out source)
  file(READ ${source} text)
  string(REGEX REPLACE "[][;\\\\]" " " text "${text}")  # characters that lists treat specially
  set(names "")
  string(FIND "${text}" "\nnamespace {\n" begin)
  while(begin GREATER -1)
    string(SUBSTRING "${text}" ${begin} -1 text)
    string(FIND "${text}" "\n}  // namespace\n" end)
    string(SUBSTRING "${text}" 0 ${end} local)
    string(REGEX MATCHALL "\n[A-Za-z][^\n]*" lines "${local}")
    foreach(line ${lines})
      foreach(form
          "^\n(struct|class|enum class|enum|union) ([A-Za-z0-9_]+)"
          "^\n(constexpr|const|inline) [^(=]*[ *&](k[A-Z][A-Za-z0-9]*)"
          "^\n(using) ([A-Za-z0-9_]+) ="
          "^\n([A-Za-z][^(=]*[ *&>])([A-Za-z0-9_]+)\\(")
        if(line MATCHES "${form}")
          list(APPEND names ${CMAKE_MATCH_2})
        endif()
      endforeach()
    endforeach()
    if(end EQUAL -1)
      break()
    endif()
    string(SUBSTRING "${text}" ${end} -1 text)
    string(FIND "${text}" "\nnamespace {\n" begin)
  endwhile()
  list(REMOVE_DUPLICATES names)
  list(REMOVE_ITEM names PrintTo)  # overloads: each prints a type of its file
  set(${out} ${names} PARENT_SCOPE)
endfunction()

# weft_unity(OUT TARGET ROOT SOURCES...): sets OUT to the files that TARGET compiles instead of
# SOURCES, which are below the include folder ROOT. A unit includes files by their paths relative to
# ROOT, so a compiler cache finds them in another clone (CMake's own unity builds use absolute
# paths).
function(weft_unity out target root)
  set(files "")
  set(units 0)
  foreach(source ${ARGN})
    if(NOT WEFT_UNITY OR source MATCHES "${WEFT_ALONE}")
      list(APPEND files ${source})
      continue()
    endif()
    weft_local_names(names ${source})
    set(unit 0)  # the first unit that is not full and has none of the names
    while(unit LESS units)
      set(equal "")
      foreach(name ${names})
        if(name IN_LIST names_${unit})
          set(equal ${name})
          break()
        endif()
      endforeach()
      if(NOT equal AND count_${unit} LESS WEFT_UNITY_FILES)
        break()
      endif()
      math(EXPR unit "${unit} + 1")
    endwhile()
    if(unit EQUAL units)
      math(EXPR units "${units} + 1")
      set(count_${unit} 0)
    endif()
    file(RELATIVE_PATH name ${root} ${source})
    string(APPEND text_${unit} "#include \"${name}\"\n")
    math(EXPR count_${unit} "${count_${unit}} + 1")
    list(APPEND names_${unit} ${names})
  endforeach()
  set(unit 0)
  while(unit LESS units)
    set(file ${CMAKE_BINARY_DIR}/unity/${target}/unit_${unit}.cc)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text_${unit}}" @ONLY)
    # A class in one file may have members of types local to this file.
    set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS -Wno-subobject-linkage)
    list(APPEND files ${file})
    math(EXPR unit "${unit} + 1")
  endwhile()
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# Headers of other projects that most units include. A unit reads them in a third of the time from
# their precompiled form. A compiler cache (ccache) does not keep units that read it, so a build with a
# compiler launcher parses them. In a build for fuzzing, a missing #include is an error.
option(WEFT_PCH "Precompile headers of the standard library, fmt and nlohmann_json" ON)
set(WEFT_PCH_HEADERS <algorithm> <array> <atomic> <bit> <charconv> <chrono> <cmath>
  <condition_variable> <cstdint> <cstring> <deque> <filesystem> <fmt/format.h> <fmt/ranges.h>
  <functional> <map> <memory> <mutex> <nlohmann/json.hpp> <numeric> <optional> <set> <span> <string>
  <string_view> <thread> <tuple> <unordered_map> <utility> <variant> <vector>)
# weft_pch(NAME LIBRARIES...): the library NAME, whose precompiled headers others reuse.
function(weft_pch name)
  if(NOT WEFT_PCH OR WEFT_FUZZ OR CMAKE_CXX_COMPILER_LAUNCHER)
    return()
  endif()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/unity/${name}.cc CONTENT "" @ONLY)
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/unity/${name}.cc)
  target_link_libraries(${name} PRIVATE weft_options ${ARGN})
  target_precompile_headers(${name} PRIVATE ${WEFT_PCH_HEADERS})
endfunction()

# For code that waits for people, files, networks or kernels: -O1 compiles a third faster than -O3.
function(weft_light target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# weft_library(FOLDER [DEPS...]): the library weft_FOLDER from all src/FOLDER/**/*.cc.
function(weft_library folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${WEFT_ROOT}/src/${folder}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/kernels/(vector|amx|avxvnni)/")  # compiled per instruction set
  foreach(level avx2 avx512)
    if(NOT level IN_LIST WEFT_LEVELS)  # cmake/cpu_levels.cmake
      list(FILTER sources EXCLUDE REGEX "/tensor/encode/level_${level}\\.cc$")
    endif()
  endforeach()
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
  if(TARGET weft_pch AND ARGN)
    target_precompile_headers(weft_${folder} REUSE_FROM weft_pch)
  endif()
  if(folder MATCHES "^(tensor|kernels)$")
    target_include_directories(weft_${folder} PRIVATE ${CMAKE_BINARY_DIR}/generated)  # cpu_levels.h
  endif()
endfunction()

# Where tools/setup.sh puts what it brings: a compiler of shaders (cmake/shaders.cmake), and lavapipe,
# the Vulkan driver of tests (tests/support/lavapipe.h).
if(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
  set(weft_cache $ENV{XDG_CACHE_HOME}/weft)
else()
  set(weft_cache $ENV{HOME}/.cache/weft)
endif()
set(WEFT_LAVAPIPE ${weft_cache}/lavapipe CACHE PATH "Folder of the Vulkan driver of tests")

# Folders of which a process runs a whole suite, because starting one costs 50 ms of a core, and
# opening a Vulkan device 300 ms. In other folders, each test has its own process.
set(WEFT_SUITES "base|hw|tensor|tokenizer|kernels|program|model_files|backend|model|grammar|chat|quantize|doctor|load|fabric|fleet|hub|net|coll|vulkan|train|gpu|engine|plan|serve")

# weft_optimized_first(TARGET LIBRARIES...): links the objects of these libraries, and of all that
# they depend on, before those of TARGET. A template that both instantiate is then the library's
# optimized one: a linker keeps the first. (With those of tests compiled with -O0, the code under
# test took almost three times as long.)
function(weft_optimized_first target)
  set(left ${ARGN})
  set(files "")
  while(left)
    list(POP_FRONT left library)
    if(library IN_LIST seen OR NOT library MATCHES "^weft_" OR NOT TARGET ${library})
      continue()
    endif()
    list(APPEND seen ${library})
    get_target_property(type ${library} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      list(APPEND files $<TARGET_FILE:${library}>)
    endif()
    get_target_property(below ${library} INTERFACE_LINK_LIBRARIES)
    if(below)
      list(APPEND left ${below})
    endif()
  endwhile()
  target_link_options(${target} PRIVATE -Wl,--whole-archive ${files} -Wl,--no-whole-archive)
endfunction()

find_program(weft_gold ld.gold)
mark_as_advanced(weft_gold)
# weft_tests(FOLDER [DEPS...]): one GoogleTest program from tests/FOLDER/*_test.cc, and *_data.cc for
# what several of them use.
function(weft_tests folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*_test.cc
    ${CMAKE_SOURCE_DIR}/tests/${folder}/*_data.cc)
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
  # The code under test is optimized. Tests compute little themselves: with -O0 they compile in
  # three fifths of the time of -O1. In a few folders, tests compare many numbers.
  set(level -O0)
  if(folder MATCHES "^(backend|coll|kernels|model|program|quantize|tensor)$" OR WEFT_SANITIZE)
    set(level -O1)
  endif()
  target_compile_options(${folder}_tests PRIVATE ${level})
  if(NOT WEFT_SANITIZE)
    weft_optimized_first(${folder}_tests ${ARGN})
  endif()
  add_dependencies(${folder}_tests weft)
  if(weft_gold)  # half of the time to link
    target_link_options(${folder}_tests PRIVATE -fuse-ld=gold)
  endif()
  # Tests of whole jobs have several processes and deadlines, so they run one at a time, beside
  # other tests.
  set(alone "")
  if(folder MATCHES "^(cluster|engine)$")
    set(alone RESOURCE_LOCK whole_job COST 1500)
  endif()
  # (One variable each, because GoogleTest's module in CMake 3.25 takes a list of two as two
  # properties.)
  set(lavapipe "")
  if(folder MATCHES "^(gpu|vulkan|backend|engine|train|cli)$")
    set(lavapipe ENVIRONMENT WEFT_LAVAPIPE=${WEFT_LAVAPIPE}
      ENVIRONMENT_MODIFICATION LD_LIBRARY_PATH=path_list_prepend:${WEFT_LAVAPIPE}/lib)
  endif()
  if(folder MATCHES "^(${WEFT_SUITES})$")
    set(rules ${CMAKE_CURRENT_BINARY_DIR}/${folder}_suites.cmake)
    file(GENERATE OUTPUT ${rules} CONTENT "set(PROGRAM $<TARGET_FILE:${folder}_tests>)
set(FOLDER ${folder})
set(LIST ${CMAKE_CURRENT_BINARY_DIR}/${folder}_suites.txt)
set(PROPERTIES TIMEOUT ${WEFT_TEST_SECONDS} ${alone} ${lavapipe})
include(${WEFT_ROOT}/cmake/suites.cmake)
")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${rules})
    return()
  endif()
  gtest_discover_tests(${folder}_tests DISCOVERY_MODE PRE_TEST
    PROPERTIES TIMEOUT ${WEFT_TEST_SECONDS} LABELS ${folder} ${alone} ${lavapipe})
endfunction()
