# Shaders: compiles each variant of src/shaders/*.comp to SPIR-V (rules: src/shaders/shaders.h),
# with one glslc job per variant, and embeds the variants in one C++ file.

option(WEFT_GPU "Compute on GPUs" ON)
option(WEFT_SMALL_MATRIX_UNITS
  "Kernels for cooperative matrices of 8 x 8 x 8 and 8 x 16 x 16 elements; not yet tried on a GPU" OFF)
set(shader_flags "")
if(WEFT_SMALL_MATRIX_UNITS)
  set(shader_flags -DSMALL_UNITS)
endif()
find_path(VULKAN_HEADERS vulkan/vulkan_core.h)
find_program(GLSLC glslc)
# Where tools/setup.sh installs another compiler, if the system's lacks cooperative matrices. It
# compiles only the kernels with these: its optimizer makes 16-bit constants in other kernels, for
# which they lack the capability.
set(WEFT_GLSLANG ${weft_cache}/glslang CACHE PATH "Folder of a glslc for features that GLSLC lacks")
set(shader_out ${CMAKE_BINARY_DIR}/shaders)
file(MAKE_DIRECTORY ${shader_out})
set(weft_shaders FALSE)
if(NOT WEFT_GPU)
  message(NOTICE "-- WEFT_GPU is OFF: no GPU is used")
elseif(NOT GLSLC)
  message(NOTICE "-- No glslc (packages glslc, shaderc; or -DGLSLC=...): no GPU is used")
else()
  set(weft_shaders TRUE)
endif()

# Files of src/gpu: without kernels only none.cc, common.cc and cards.cc. The folder vulkan needs headers; the other
# drivers declare what they call.
set(weft_vulkan FALSE)
if(NOT weft_shaders)
  set(WEFT_ONLY_gpu "/gpu/(none|common|cards)\\.cc$")
elseif(VULKAN_HEADERS)
  set(weft_vulkan TRUE)
  set(WEFT_LEAVE_OUT_gpu "/none\\.cc$")
else()
  message(NOTICE "-- No vulkan/vulkan_core.h (libvulkan-dev, vulkan-headers): no GPU through Vulkan")
  set(WEFT_LEAVE_OUT_gpu "/gpu/none\\.cc$|/vulkan/[^n]")
endif()

# Sets SHADER_HAS_<FEATURE>: whether `glslc` compiles the shader TEXT. Tested once per glslc.
function(weft_shader_feature glslc feature text)
  execute_process(COMMAND ${glslc} --version OUTPUT_VARIABLE version ERROR_QUIET)
  string(SHA256 asked "${glslc} ${version} ${text}")
  if(NOT "${SHADER_ASKED_${feature}}" STREQUAL asked)
    file(WRITE ${shader_out}/probe_${feature}.comp "${text}")
    execute_process(COMMAND ${glslc} --target-env=vulkan1.2 -o ${shader_out}/probe.spv
      ${shader_out}/probe_${feature}.comp RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    set(has TRUE)
    if(failed)
      set(has FALSE)
    endif()
    set(SHADER_HAS_${feature} ${has} CACHE INTERNAL "")
    set(SHADER_ASKED_${feature} ${asked} CACHE INTERNAL "")
  endif()
endfunction()
set(shader_features coopmat)
set(coopmat_probe "#version 450
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
void main() {
  coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a =
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>(float16_t(0));
}
")
if(weft_shaders)
  set(GLSLC_coopmat ${GLSLC})
  weft_shader_feature(${GLSLC} coopmat "${coopmat_probe}")
  if(NOT SHADER_HAS_coopmat AND EXISTS ${WEFT_GLSLANG}/glslc)
    set(GLSLC_coopmat ${WEFT_GLSLANG}/glslc)
    weft_shader_feature(${GLSLC_coopmat} coopmat "${coopmat_probe}")
  endif()
  if(NOT SHADER_HAS_coopmat)
    message(NOTICE "-- ${GLSLC} lacks coopmat: GPUs compute without their matrix units, and read "
      "prompts slowly (docs/gpu.md)")
  endif()
endif()

# weft_shader(FILE NAME DEFINES...): compiles one variant to NAME.spv with `shader_glslc` if that is set,
# else with GLSLC; with `shader_numbers`, to NAME.inc, the SPIR-V words as numbers.
function(weft_shader file name)
  set(glslc ${GLSLC})
  if(shader_glslc)
    set(glslc ${shader_glslc})
  endif()
  set(out ${shader_out}/${name}.spv)
  set(form "")
  if(shader_numbers)
    set(out ${shader_out}/${name}.inc)
    set(form -mfmt=num)
  endif()
  add_custom_command(OUTPUT ${out}
    COMMAND ${glslc} --target-env=vulkan1.2 -O ${form} -I ${WEFT_ROOT}/src/shaders
      ${shader_flags} ${ARGN} -MD -MF ${out}.d -MT ${out} -o ${out} ${file}
    DEPENDS ${file} ${glslc} DEPFILE ${out}.d VERBATIM COMMENT "Shader ${name}")
endfunction()

# Lists of weights' types: SHADER_TYPES_<LIST>, from lines "//= LIST TYPE ..." of types.glsl.
set(shader_types ${WEFT_ROOT}/src/shaders/types.glsl)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${shader_types})
file(STRINGS ${shader_types} shader_lists REGEX "^//= ")
foreach(line ${shader_lists})
  separate_arguments(line)
  list(POP_FRONT line mark list)
  list(APPEND SHADER_TYPES_${list} ${line})
endforeach()

# weft_each_type(OUT VARIANT): the variant "//: NAME_@ -D@ ... for TYPE|LIST ..." of each type.
function(weft_each_type out variant)
  set(all ${variant})
  if(variant MATCHES "^(.*) for ([A-Z0-9_ ]+)( : .*)?$")
    set(before "${CMAKE_MATCH_1}")
    set(after "${CMAKE_MATCH_3}")
    separate_arguments(words UNIX_COMMAND "${CMAKE_MATCH_2}")
    set(all "")
    foreach(word ${words})
      if(NOT DEFINED SHADER_TYPES_${word})
        set(SHADER_TYPES_${word} ${word})
      endif()
      foreach(type ${SHADER_TYPES_${word}})
        string(REPLACE "-D@" "-D${type}" one "${before}")
        string(TOLOWER ${type} type)
        string(REPLACE "_@" "_${type}" one "${one}")
        list(APPEND all "${one}${after}")
      endforeach()
    endforeach()
  endif()
  set(${out} "${all}" PARENT_SCOPE)
endfunction()

# Compiles the variants of one .comp file, and appends their files to `words`, their symbols to
# `embedded` and their rows to `rows`.
macro(weft_shader_file path)
  get_filename_component(stem ${path} NAME_WE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(STRINGS ${path} lines REGEX "^//: ")
  if(NOT lines)
    set(lines "//: ${stem}")
  endif()
  set(variants "")
  foreach(line ${lines})
    weft_each_type(each "${line}")
    list(APPEND variants ${each})
  endforeach()
  foreach(variant ${variants})
    if(NOT variant MATCHES "^//: ([a-z0-9_]+)(( -D[A-Za-z0-9_]+(=[A-Za-z0-9_]+)?)*)( : ([a-z0-9_]+))?$")
      message(FATAL_ERROR "${path}: not '//: name -DMACRO ... : feature': ${variant}")
    endif()
    set(name ${CMAKE_MATCH_1})
    set(feature "${CMAKE_MATCH_6}")
    string(STRIP "${CMAKE_MATCH_2}" defines)
    separate_arguments(defines)
    if(feature AND NOT feature IN_LIST shader_features)
      message(FATAL_ERROR "${path}: ${name}: no feature '${feature}' is known: ${shader_features}")
    endif()
    if(name IN_LIST shader_names)
      message(FATAL_ERROR "${path}: there is a shader ${name} already")
    endif()
    list(APPEND shader_names ${name})
    if(NOT feature OR SHADER_HAS_${feature})
      set(shader_glslc "")
      if(feature)
        set(shader_glslc ${GLSLC_${feature}})
      endif()
      weft_shader(${path} ${name} ${defines})
      set(shader_glslc "")
      list(APPEND words ${shader_out}/${name}.spv)
      string(APPEND embedded "EMBED(${name})\n")
      string(APPEND rows "        {\"${name}\", {begin_${name}, end_${name}}},\n")
    endif()
  endforeach()
endmacro()

# Compiles all of src/shaders into the library weft_shaders.
macro(weft_all_shaders)
  set(words "")
  set(embedded "")
  set(rows "")
  set(lacking "")
  set(shader_names "")
  if(weft_shaders)
    file(GLOB shader_files CONFIGURE_DEPENDS ${WEFT_ROOT}/src/shaders/*.comp)
    list(SORT shader_files)
    foreach(shader_file ${shader_files})
      weft_shader_file(${shader_file})
    endforeach()
    foreach(feature ${shader_features})
      if(NOT SHADER_HAS_${feature})
        string(APPEND lacking "\"${feature}\", ")
      endif()
    endforeach()
  endif()
  # The assembler includes the files: a compiler takes 20 s of processor time for their words in C++.
  file(CONFIGURE OUTPUT ${shader_out}/table.cc CONTENT "// Made by cmake/shaders.cmake.
#include \"shaders/table.h\"

#define EMBED(name)                                                              \\
    __asm__(\".section .rodata\\n.balign 4\\nweft_spirv_begin_\" #name \":\\n\"            \\
            \".incbin \\\"@shader_out@/\" #name \".spv\\\"\\n\"                      \\
            \"weft_spirv_end_\" #name \":\\n.previous\\n\");                         \\
    extern const uint32_t begin_##name[] __asm__(\"weft_spirv_begin_\" #name);         \\
    extern const uint32_t end_##name[] __asm__(\"weft_spirv_end_\" #name);

namespace weft::shaders {

@embedded@
const std::vector<Row>& Table() {
    static const std::vector<Row> rows = {
@rows@    };
    return rows;
}

std::vector<std::string_view> FeaturesLacking() {
    return {@lacking@};
}

}  // namespace weft::shaders
" @ONLY)
  set_source_files_properties(${shader_out}/table.cc PROPERTIES OBJECT_DEPENDS "${words}")
  target_sources(weft_shaders PRIVATE ${shader_out}/table.cc)
endmacro()
