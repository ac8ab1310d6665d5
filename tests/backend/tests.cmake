# weft with another device (strange/device.cc), and tests of whole jobs on it: the same programs as
# those that test weft, told to start this one.
add_executable(weft_strange $<TARGET_OBJECTS:weft> ${CMAKE_CURRENT_LIST_DIR}/strange/device.cc
  ${CMAKE_CURRENT_LIST_DIR}/strange/memory.cc)
target_link_libraries(weft_strange PRIVATE weft_serve CLI11::CLI11)
