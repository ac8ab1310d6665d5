# Replaces the C library's host name look-up in a test of weft pull.
add_library(slow_resolver MODULE ${CMAKE_CURRENT_LIST_DIR}/slow_resolver.cc)
target_compile_options(slow_resolver PRIVATE -fno-sanitize=all)
target_link_options(slow_resolver PRIVATE -fno-sanitize=all)
add_dependencies(hub_tests slow_resolver)
target_compile_definitions(hub_tests PRIVATE WEFT_SLOW_RESOLVER="$<TARGET_FILE:slow_resolver>")
# Simulates a file system without symbolic links.
add_library(no_symlinks MODULE ${CMAKE_CURRENT_LIST_DIR}/no_symlinks.cc)
target_compile_options(no_symlinks PRIVATE -fno-sanitize=all)
target_link_options(no_symlinks PRIVATE -fno-sanitize=all)
add_dependencies(hub_tests no_symlinks)
target_compile_definitions(hub_tests PRIVATE WEFT_NO_SYMLINKS="$<TARGET_FILE:no_symlinks>")
# Simulates a slow disk.
add_library(slow_disk MODULE ${CMAKE_CURRENT_LIST_DIR}/slow_disk.cc)
target_compile_options(slow_disk PRIVATE -fno-sanitize=all)
target_link_options(slow_disk PRIVATE -fno-sanitize=all)
target_link_libraries(slow_disk PRIVATE ${CMAKE_DL_LIBS})
add_dependencies(hub_tests slow_disk)
target_compile_definitions(hub_tests PRIVATE WEFT_SLOW_DISK="$<TARGET_FILE:slow_disk>")
