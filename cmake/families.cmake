# weft_families(LIBRARY HEADER NAMESPACE ROW LISTS SUFFIX PATTERN): adds to a library a function
# LISTS() that returns the tables of all files of the pattern. The file kimi_linear.cc (or
# family_kimi_linear.cc) defines the table kKimiLinearSUFFIX, a span of ROW.
function(weft_families library header namespace row lists suffix pattern)
  file(GLOB files CONFIGURE_DEPENDS ${pattern})
  set(tables "")
  foreach(file ${files})
    get_filename_component(name ${file} NAME_WE)
    string(REGEX REPLACE "^family_" "" name "${name}")
    string(REPLACE "_" ";" words "${name}")
    set(table "k")
    foreach(word ${words})
      string(SUBSTRING "${word}" 0 1 first)
      string(SUBSTRING "${word}" 1 -1 rest)
      string(TOUPPER "${first}" first)
      string(APPEND table "${first}${rest}")
    endforeach()
    list(APPEND tables "${table}${suffix}")
  endforeach()
  list(JOIN tables ", " tables)
  set(out ${CMAKE_BINARY_DIR}/${library}_families.cc)
  file(CONFIGURE OUTPUT ${out} CONTENT "#include \"${header}\"
namespace ${namespace} {
extern const std::span<const ${row}> ${tables};
std::vector<std::span<const ${row}>> ${lists}() {
    return {${tables}};
}
}  // namespace ${namespace}
")
  target_sources(${library} PRIVATE ${out})
endfunction()
