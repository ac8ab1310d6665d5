# Writes the lines of NAMES (models/short_names.txt) as C++ to OUT: the ShortNames() that
# src/hub/short_names.h declares.
#   cmake -DNAMES=short_names.txt -DOUT=short_names.cc -P embed_names.cmake

file(STRINGS ${NAMES} lines REGEX "^[^# ]")
set(rows "")
foreach(line ${lines})
  string(REGEX MATCH "^([^ ]+) +([^ ]+)$" whole "${line}")
  if(NOT whole)
    message(FATAL_ERROR "${NAMES}: '${line}': expected NAME MODEL")
  endif()
  string(APPEND rows "    {\"${CMAKE_MATCH_1}\", \"${CMAKE_MATCH_2}\"},\n")
endforeach()

file(WRITE ${OUT} "// Made by cmake/embed_names.cmake.
#include \"hub/short_names.h\"

namespace weft::hub {
namespace {

constexpr ShortName kNames[] = {
${rows}};

}  // namespace

std::span<const ShortName> ShortNames() {
    return kNames;
}

}  // namespace weft::hub
")
