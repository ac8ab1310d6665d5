# Install rules for `cmake --install build [--prefix P]`, with DESTDIR in front, and for the
# packages of cmake/package.cmake. The program finds its plug-ins relative to itself, so an
# installed tree can be moved as a whole.
#
#   bin/weft                           lib/weft/weft_mpi_*.so         lib/systemd/system/*.service
#   share/man/man1/weft*.1             share/doc/weft                 the completion of three shells
#
# Components: `weft`, and one per MPI library, because a package of plug-ins depends on its library.

include(GNUInstallDirs)
# Relative to the program's folder: net/mpi/library.cc.
file(RELATIVE_PATH plugin_place /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR}/weft)
target_compile_definitions(weft_net PRIVATE WEFT_PLUGIN_PLACE="${plugin_place}")

install(TARGETS weft RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT weft)
foreach(flavour ${flavours})
  install(FILES ${CMAKE_BINARY_DIR}/weft_mpi_${flavour}.so COMPONENT ${flavour}
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/weft)
endforeach()

# Manual pages and completions, which the program generates. A cross build cannot run it.
if(NOT CMAKE_CROSSCOMPILING)
  set(pages ${CMAKE_BINARY_DIR}/pages)
  set(shells bash/weft zsh/_weft fish/weft.fish)
  list(TRANSFORM shells PREPEND ${pages}/)
  list(GET shells 0 bash)
  list(GET shells 1 zsh)
  list(GET shells 2 fish)
  add_custom_command(OUTPUT ${pages}/man/weft.1 ${shells}
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${pages}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${pages}/bash ${pages}/zsh ${pages}/fish
    COMMAND $<TARGET_FILE:weft> man --all ${pages}/man
    COMMAND $<TARGET_FILE:weft> completion bash > ${bash}
    COMMAND $<TARGET_FILE:weft> completion zsh > ${zsh}
    COMMAND $<TARGET_FILE:weft> completion fish > ${fish}
    DEPENDS weft COMMENT "Manual pages and completion")
  add_custom_target(weft_pages ALL DEPENDS ${pages}/man/weft.1)
  install(DIRECTORY ${pages}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT weft)
  set(share ${CMAKE_INSTALL_DATADIR})
  install(FILES ${bash} DESTINATION ${share}/bash-completion/completions COMPONENT weft)
  install(FILES ${zsh} DESTINATION ${share}/zsh/site-functions COMPONENT weft)
  install(FILES ${fish} DESTINATION ${share}/fish/vendor_completions.d COMPONENT weft)
endif()

install(FILES ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/CHANGELOG.md
  ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT weft)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT weft)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/deploy/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/deploy COMPONENT weft)
# systemd searches below /usr and /usr/local; for other prefixes, copy the units by hand.
install(FILES ${CMAKE_SOURCE_DIR}/deploy/weft.service
  ${CMAKE_SOURCE_DIR}/deploy/weft-worker.service
  DESTINATION lib/systemd/system COMPONENT weft)
include(package)
