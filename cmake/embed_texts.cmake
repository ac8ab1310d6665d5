# Writes the JSON files of FOLDER/machines and FOLDER/models/shapes as C++ to OUT: the
# EmbeddedFiles() that src/plan/machine.h declares.
#   cmake -DFOLDER=. -DOUT=plan_files.cc -P embed_texts.cmake
# Names are sorted and nothing else is embedded, so equal files give equal bytes.

set(rows "")
foreach(place machines models/shapes)
  get_filename_component(folder ${place} NAME)
  file(GLOB paths ${FOLDER}/${place}/*.json)
  list(SORT paths)
  foreach(path ${paths})
    get_filename_component(name ${path} NAME)
    string(REGEX REPLACE "\\.json$" "" name "${name}")
    file(READ ${path} text)
    string(APPEND rows "    {\"${folder}\", \"${name}\", R\"weft(${text})weft\"},\n")
  endforeach()
endforeach()

file(WRITE ${OUT} "// Made by cmake/embed_texts.cmake.
#include \"plan/machine.h\"

namespace weft::plan {
namespace {

constexpr EmbeddedFile kFiles[] = {
${rows}};

}  // namespace

std::span<const EmbeddedFile> EmbeddedFiles() {
    return kFiles;
}

}  // namespace weft::plan
")
