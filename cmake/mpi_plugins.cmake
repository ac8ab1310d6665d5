# Builds one plug-in per MPI library found, beside the weft program: weft_mpi_openmpi.so and
# weft_mpi_mpich.so. Each is compiled by that library's own mpicc; weft itself never includes mpi.h.
# Without MPI, the build lacks only `mpi` links.
#
#   -DWEFT_MPICC="wrapper;wrapper"   compilers to use instead of those found on PATH

set(WEFT_MPICC "" CACHE STRING "MPI compiler wrappers for the mpi plug-ins (default: those on PATH)")
set(wrappers ${WEFT_MPICC})
if(NOT wrappers)
  foreach(name mpicc.openmpi mpicc.mpich mpicc cc)
    # Searches at each configuration, because a library may have been added or removed.
    unset(found_${name} CACHE)
    find_program(found_${name} ${name} NO_CACHE)
    # Only on Cray systems is `cc` an MPI compiler.
    if(found_${name} AND (NOT name STREQUAL "cc" OR DEFINED ENV{CRAYPE_VERSION}))
      list(APPEND wrappers ${found_${name}})
    endif()
  endforeach()
endif()

set(plugin_source ${CMAKE_SOURCE_DIR}/src/net/mpi/plugin.c)
set(flavours "")
foreach(wrapper ${wrappers})
  # mpi.h identifies the library.
  execute_process(COMMAND ${wrapper} -E -dM -include mpi.h -x c /dev/null
    OUTPUT_VARIABLE macros ERROR_QUIET RESULT_VARIABLE failed)
  set(flavour "")
  if(NOT failed AND macros MATCHES "#define OPEN_MPI ")
    set(flavour openmpi)
  elseif(NOT failed AND macros MATCHES "#define (MPICH_VERSION|I_MPI_VERSION) ")
    set(flavour mpich)
  endif()
  if(NOT flavour OR flavour IN_LIST flavours)
    continue()
  endif()
  list(APPEND flavours ${flavour})
  set(plugin ${CMAKE_BINARY_DIR}/weft_mpi_${flavour}.so)
  # Another version of the library needs another plug-in, because its handles and file names may
  # differ.
  string(REGEX MATCHALL "#define (OMPI_[A-Z]*_VERSION|MPICH_VERSION|I_MPI_VERSION) [^\n]*" version
    "${macros}")
  set(stamp ${CMAKE_BINARY_DIR}/weft_mpi_${flavour}.version)
  file(CONFIGURE OUTPUT ${stamp} CONTENT "${wrapper}\n${version}\n" @ONLY)
  add_custom_command(OUTPUT ${plugin}
    COMMAND ${wrapper} -std=gnu11 -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror
      -o ${plugin} ${plugin_source}
    DEPENDS ${plugin_source} ${CMAKE_SOURCE_DIR}/src/net/mpi/abi.h ${stamp} VERBATIM
    COMMENT "Building the ${flavour} plug-in")
  add_custom_target(weft_mpi_${flavour} DEPENDS ${plugin})
  add_dependencies(weft weft_mpi_${flavour})
endforeach()
foreach(flavour openmpi mpich)
  if(NOT flavour IN_LIST flavours)  # of a library that went
    file(REMOVE ${CMAKE_BINARY_DIR}/weft_mpi_${flavour}.so)
  endif()
endforeach()
if(flavours)
  list(JOIN flavours ", " found)
  message(STATUS "mpi plug-ins: ${found}")
else()
  message(STATUS "mpi plug-ins: none (libopenmpi-dev or libmpich-dev give them)")
endif()
