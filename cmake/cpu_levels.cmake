# The CPU levels (hw/cpu.h) whose kernels are built: sets WEFT_LEVELS, and writes cpu_levels.h with
# WEFT_HAS_<LEVEL>, 0 or 1, for each level.

set(WEFT_CPU_LEVELS all CACHE STRING
  "Kernels to build: all levels of the architecture, or native: only what this processor runs")
set_property(CACHE WEFT_CPU_LEVELS PROPERTY STRINGS all native)
if(NOT WEFT_CPU_LEVELS MATCHES "^(all|native)$")
  message(FATAL_ERROR "WEFT_CPU_LEVELS=${WEFT_CPU_LEVELS}: expected all or native")
endif()

# Sets `out` to whether /proc/cpuinfo has all of these flags.
function(weft_has_flags out)
  file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
  set(${out} TRUE PARENT_SCOPE)
  foreach(flag ${ARGN})
    if(NOT "${flags} " MATCHES " ${flag} ")
      set(${out} FALSE PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

set(WEFT_LEVELS "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(WEFT_LEVELS avx2 avxvnni avx512 amx)
  if(WEFT_CPU_LEVELS STREQUAL "native")
    # AVX-VNNI shares most kernels with AVX2, and AMX with AVX-512.
    weft_has_flags(avx512 avx2 fma f16c avx512f avx512bw avx512vl avx512dq avx512vbmi avx512_vnni
      avx512_bf16)
    weft_has_flags(amx amx_tile amx_int8 amx_bf16)
    weft_has_flags(avxvnni avx_vnni)
    if(avx512 AND amx)
      set(WEFT_LEVELS avx512 amx)
    elseif(avx512)
      set(WEFT_LEVELS avx512)
    elseif(avxvnni)
      set(WEFT_LEVELS avx2 avxvnni)
    else()
      set(WEFT_LEVELS avx2)
    endif()
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(WEFT_LEVELS neon i8mm)
endif()

set(text "// Made by cmake/cpu_levels.cmake.\n#pragma once\n\n")
foreach(level avx2 avxvnni avx512 amx neon i8mm)
  set(has 0)
  if(level IN_LIST WEFT_LEVELS)
    set(has 1)
  endif()
  string(TOUPPER ${level} upper)
  string(APPEND text "#define WEFT_HAS_${upper} ${has}\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/cpu_levels.h CONTENT "${text}" @ONLY)
