# weft_families(FOLDER): adds to weft_families the lists of all families' tables (families/family.h),
# which model_files and model declare. The file kimi_linear.cc of FOLDER defines
# families::kimi_linear::kTables.
function(weft_families folder)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*.cc)
  foreach(file ${files})
    get_filename_component(name ${file} NAME_WE)
    string(APPEND tables "namespace families::${name} { extern const Tables kTables; }\n")
    string(APPEND folders "families::${name}::kTables.folders,\n")
    string(APPEND architectures "families::${name}::kTables.architectures,\n")
  endforeach()
  set(out ${CMAKE_BINARY_DIR}/weft_families.cc)
  file(CONFIGURE OUTPUT ${out} CONTENT "#include \"families/family.h\"
namespace weft {
${tables}
std::vector<std::span<const model_files::hf::Family>> model_files::hf::AllTables() {
    return {${folders}};
}
std::vector<std::span<const model::Architecture>> model::AllFamilies() {
    return {${architectures}};
}
}  // namespace weft
")
  target_sources(weft_families PRIVATE ${out})
  # (Each needs the other: a linker reads them twice.)
  target_link_libraries(weft_model_files INTERFACE weft_families)
endfunction()
