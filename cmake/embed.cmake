# Writes the files of web/, and docs/openapi.json, as C++ into OUT (what src/serve/page.h declares as PageFiles()):
#   cmake -DFOLDER=web -DOUT=page_files.cc -P embed.cmake
# Names are in alphabetical order and nothing else goes in, so that equal files give equal bytes.

set(types
  .html text/html
  .css text/css
  .js text/javascript
  .svg image/svg+xml
  .json application/json)

file(GLOB paths ${FOLDER}/*.html ${FOLDER}/*.css ${FOLDER}/*.js ${FOLDER}/*.svg
  ${FOLDER}/../docs/openapi.json)
list(SORT paths)
set(arrays "")
set(rows "")
set(count 0)
foreach(path ${paths})
  get_filename_component(name ${path} NAME)
  get_filename_component(extension ${path} LAST_EXT)
  list(FIND types ${extension} place)
  math(EXPR place "${place} + 1")
  list(GET types ${place} type)
  if(type MATCHES "^text/")
    string(APPEND type "; charset=utf-8")
  endif()
  file(SHA256 ${path} hash)
  string(SUBSTRING ${hash} 0 16 hash)
  file(READ ${path} hex HEX)
  # 24 bytes a line: compilers dislike lines without an end.
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REPEAT "....." 24 line)
  string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
  string(APPEND arrays "const unsigned char kBytes${count}[] = {\n${bytes}0};\n\n")
  string(APPEND rows
    "    {\"${name}\", \"${type}\", \"\\\"${hash}\\\"\", kBytes${count}, sizeof kBytes${count} - 1},\n")
  math(EXPR count "${count} + 1")
endforeach()

file(WRITE ${OUT} "// Made by cmake/embed.cmake.
#include \"serve/page.h\"

namespace weft::serve {
namespace {

${arrays}const PageFile kFiles[] = {
${rows}};

}  // namespace

std::span<const PageFile> PageFiles() {
    return kFiles;
}

}  // namespace weft::serve
")
