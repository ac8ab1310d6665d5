# Packages that `cpack` writes to the build folder (docs/install.md):
#
#   cpack -G DEB   weft, and weft-openmpi and weft-mpich with the plug-ins for these libraries
#   cpack -G TGZ   weft-VERSION-Linux-PROCESSOR.tar.gz: one folder, which runs from any place
#
# cmake/package_files.cmake finishes the staged files of each.

set(CPACK_PACKAGE_NAME weft)
set(CPACK_PACKAGE_VENDOR "The authors of Weft")
set(WEFT_MAINTAINER "Weft <weft@localhost>" CACHE STRING "Who answers for packages: NAME <MAIL>")
set(CPACK_PACKAGE_CONTACT ${WEFT_MAINTAINER})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs, serves and trains language models over several machines")
set(CPACK_PACKAGE_DESCRIPTION "Weft runs one large language model on several ordinary
machines, over plain Ethernet, RDMA or shared memory: answers on the
command line, an HTTP server with the APIs of OpenAI, Anthropic and Ollama,
and training.")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_SOURCE_GENERATOR "")
set(CPACK_GENERATOR "DEB;TGZ")
set(CPACK_COMPONENTS_ALL weft ${flavours})
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/package_files.cmake)
set(CPACK_WEFT_ROOT ${CMAKE_SOURCE_DIR})
set(CPACK_WEFT_LEVELS ${WEFT_CPU_LEVELS})
set(CPACK_WEFT_VERSION ${PROJECT_VERSION})

set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
set(CPACK_PACKAGE_FILE_NAME weft-${PROJECT_VERSION}-Linux-${CMAKE_SYSTEM_PROCESSOR})

# dpkg-shlibdeps finds linked libraries for Depends; libraries loaded at run time are not found.
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_WEFT_PACKAGE_NAME weft)
set(CPACK_DEBIAN_WEFT_PACKAGE_RECOMMENDS "ca-certificates, libibverbs1, libvulkan1")
set(suggested mesa-vulkan-drivers ibverbs-providers)
set(names openmpi "Open MPI" mpich "MPICH")
foreach(flavour ${flavours})
  list(APPEND suggested weft-${flavour})
  list(FIND names ${flavour} place)
  math(EXPR place "${place} + 1")
  list(GET names ${place} name)
  string(TOUPPER ${flavour} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME weft-${flavour})
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "weft (= ${PROJECT_VERSION})")
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "The plug-in that weft loads where mpirun of ${name}
started it, for links over that library.")
endforeach()
list(JOIN suggested ", " CPACK_DEBIAN_WEFT_PACKAGE_SUGGESTS)
set(CPACK_COMPONENT_WEFT_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}")
include(CPack)
