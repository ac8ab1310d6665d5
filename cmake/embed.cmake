# Writes OUT, the PageFiles() that src/serve/page.h declares: the files of FOLDER (web/),
# docs/openapi.json, LIBRARIES (NAME|PATH,NAME|PATH...), and libraries.js, which tells the page
# which libraries are present.
#   cmake -DFOLDER=web -DOUT=page_files.cc -DWORK=page -DLIBRARIES=... -DGZIP=gzip -P embed.cmake
# Text is compressed with gzip, if present; files for the assembler to include go to WORK. Names are
# sorted and nothing else is embedded, so equal files give equal bytes.

set(types
  .html text/html
  .css text/css
  .js text/javascript
  .txt text/plain
  .svg image/svg+xml
  .json application/json
  .woff2 font/woff2)

file(MAKE_DIRECTORY ${WORK})
set(pairs "")
file(GLOB paths ${FOLDER}/*.html ${FOLDER}/*.css ${FOLDER}/*.js ${FOLDER}/*.svg
  ${FOLDER}/../docs/openapi.json)
foreach(path ${paths})
  get_filename_component(name ${path} NAME)
  list(APPEND pairs "${name}|${path}")
endforeach()
string(REPLACE "," ";" libraries "${LIBRARIES}")
set(names "")
foreach(pair ${libraries})
  string(REGEX REPLACE "[|].*" "" name ${pair})
  string(APPEND names "  \"${name}\",\n")
  list(APPEND pairs ${pair})
endforeach()
file(WRITE ${WORK}/libraries.js
  "// What there is of others below lib/. Made by cmake/embed.cmake.\nexport const libraries = [\n${names}];\n")
list(APPEND pairs "libraries.js|${WORK}/libraries.js")
list(SORT pairs)

set(code "")
set(declarations "")
set(rows "")
set(count 0)
foreach(pair ${pairs})
  string(REGEX REPLACE "[|].*" "" name ${pair})
  string(REGEX REPLACE "^[^|]*[|]" "" path ${pair})
  get_filename_component(extension ${path} LAST_EXT)
  if(NOT extension)
    set(extension .txt)
  endif()
  list(FIND types ${extension} place)
  math(EXPR place "${place} + 1")
  list(GET types ${place} type)
  if(type MATCHES "^text/")
    string(APPEND type "; charset=utf-8")
  endif()
  file(SHA256 ${path} hash)
  string(SUBSTRING ${hash} 0 16 hash)
  set(kept ${path})
  set(zipped false)
  if(GZIP AND NOT extension STREQUAL .woff2)
    set(kept ${WORK}/${count}.gz)
    execute_process(COMMAND ${GZIP} -9 -n -c ${path} OUTPUT_FILE ${kept} RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "${GZIP} ${path}: status ${status}")
    endif()
    set(zipped true)
  endif()
  string(APPEND code "weft_page_${count}: .incbin \\\"${kept}\\\"\\n\"\n    \"")
  string(APPEND declarations "extern const unsigned char weft_page_${count}[];\n")
  math(EXPR next "${count} + 1")
  file(SIZE ${kept} size)
  string(APPEND rows "    {\"${name}\", \"${type}\", \"\\\"${hash}\\\"\", weft_page_${count}, ${size}, "
    "${zipped}},\n")
  set(count ${next})
endforeach()

file(WRITE ${OUT} "// Made by cmake/embed.cmake.
#include \"serve/page.h\"

asm(\".section .rodata\\n\"
    \"${code}.previous\\n\");

extern \"C\" {
${declarations}}

namespace weft::serve {
namespace {

const PageFile kFiles[] = {
${rows}};

}  // namespace

std::span<const PageFile> PageFiles() {
    return kFiles;
}

}  // namespace weft::serve
")
