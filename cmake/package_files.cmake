# cpack (cmake/package.cmake) runs this between staging and packing. For a Debian package, it adds
# what Debian's policy requires: compressed pages, a copyright and a changelog. For the tar, it adds
# the libraries that the program needs and some systems lack (tools/carry.py).

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status ERROR_VARIABLE said)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${said}")
  endif()
endfunction()

if(NOT CPACK_WEFT_LEVELS STREQUAL "all")
  message(FATAL_ERROR "this build has the kernels of one processor only; for packages, configure "
    "with -DWEFT_CPU_LEVELS=all and build again")
endif()

file(GLOB_RECURSE plugins ${CPACK_TEMPORARY_DIRECTORY}/*/weft_mpi_*.so)
foreach(plugin ${plugins})
  run(strip --strip-unneeded ${plugin})
endforeach()

if(CPACK_GENERATOR STREQUAL "TGZ")
  find_program(PYTHON3 python3 REQUIRED)
  file(GLOB_RECURSE programs ${CPACK_TEMPORARY_DIRECTORY}/*/bin/weft ${CPACK_TEMPORARY_DIRECTORY}/bin/weft)
  list(REMOVE_DUPLICATES programs)
  foreach(program ${programs})
    get_filename_component(tree ${program}/../.. ABSOLUTE)
    run(${PYTHON3} ${CPACK_WEFT_ROOT}/tools/carry.py ${tree})
  endforeach()
  if(NOT programs)
    message(FATAL_ERROR "no bin/weft below ${CPACK_TEMPORARY_DIRECTORY}")
  endif()
  return()
endif()

foreach(component ${CPACK_COMPONENTS_ALL})
  set(usr ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr)
  if(NOT IS_DIRECTORY ${usr})
    continue()
  endif()
  set(package weft)
  if(NOT component STREQUAL "weft")
    set(package weft-${component})
  endif()
  set(doc ${usr}/share/doc/${package})
  file(MAKE_DIRECTORY ${doc})
  file(WRITE ${doc}/copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: weft

Files: *
Copyright: (c) The authors of Weft
License: Apache-2.0
 On Debian systems the text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
")
  file(REMOVE ${doc}/LICENSE)
  file(WRITE ${doc}/changelog "weft (${CPACK_WEFT_VERSION}) unstable; urgency=medium

  * See CHANGELOG.md.

 -- ${CPACK_PACKAGE_CONTACT}  Thu, 01 Jan 1970 00:00:00 +0000
")
  file(GLOB pages ${usr}/share/man/man1/*.1)
  run(gzip -9nf ${doc}/changelog ${pages})
  # Files of a package must be readable by all users, not only by the builder.
  file(GLOB_RECURSE folders LIST_DIRECTORIES true ${usr}/*)
  foreach(path ${usr} ${folders})
    if(IS_DIRECTORY ${path})
      file(CHMOD ${path} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
        WORLD_READ WORLD_EXECUTE)
    elseif(path MATCHES "[.]so$" OR path MATCHES "/bin/" )
      continue()
    else()
      file(CHMOD ${path} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
    endif()
  endforeach()
endforeach()
