# Writes OUT, the hash that src/cluster/join/build.h declares, over the files in
# cmake/protocol_files.txt without comments and white space. Touches OUT only when the hash has changed.
#   cmake -DROOT=. -DOUT=protocol_hash.cc -P protocol_hash.cmake

# Replaces characters with a meaning in CMake's lists; a hash needs no originals.
string(ASCII 1 backslash)
string(ASCII 2 semicolon)
string(ASCII 3 bracket)

# Literals are separate tokens, because a string may contain text like a comment. (1'000 is not a
# literal.)
set(text_literal "\"([^\"${backslash}]|${backslash}.)*\"")
set(letter_literal "'([^'${backslash}]|${backslash}'|${backslash}[^']+)'")
set(line_comment "//[^\n]*")
set(block_comment "/\\*([^*]|\\*+[^*/])*\\*+/")
set(token "${text_literal}|${letter_literal}|${line_comment}|${block_comment}|[^\"'/]+|.")

# Sets OUT to the code of the file at PATH.
function(read_code out path)
  file(READ ${path} text)
  string(REPLACE "\\" ${backslash} text "${text}")
  string(REPLACE ";" ${semicolon} text "${text}")
  string(REGEX REPLACE "[][]" ${bracket} text "${text}")
  string(REGEX MATCHALL "${token}" tokens "${text}")
  list(FILTER tokens EXCLUDE REGEX "^/[/*]")
  list(JOIN tokens "" code)
  string(REGEX REPLACE "[ \t\r\n]+" "" code "${code}")
  set(${out} "${code}" PARENT_SCOPE)
endfunction()

file(STRINGS ${ROOT}/cmake/protocol_files.txt names REGEX "^[^#]")
set(all "")
foreach(name ${names})
  read_code(code ${ROOT}/${name})
  string(APPEND all "${code}\n")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 12 hash)

set(text "// Made by cmake/protocol_hash.cmake.
#include \"cluster/join/build.h\"

namespace weft::cluster {

const char* ProtocolHash() {
    return \"${hash}\";
}

}  // namespace weft::cluster
")
file(CONFIGURE OUTPUT ${OUT} CONTENT "${text}" @ONLY)  # touched only where it changed
