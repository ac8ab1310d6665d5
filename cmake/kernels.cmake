# Kernels per instruction set: kernels/vector is compiled once for each set (kernels/vector/set.h),
# and only the dispatch in kernels/ chooses among them at run time. (GCC 12 warns about its own
# AVX-512 intrinsics, whose undefined operand is deliberate; this file suppresses the warning.)
# Checks of every reference in the unrolled tiles would take many minutes to compile, so they are
# off; checks of bounds and integers stay.
if(WEFT_SANITIZE MATCHES undefined)
  set(fewer "-fno-sanitize=null,alignment,object-size,pointer-overflow")
endif()
# Fuzzing targets readers of files and frames, not computation. With checks, clang takes minutes for
# a file of kernels; without them, seconds.
if(WEFT_FUZZ)
  set(last -fno-sanitize=all)
endif()
# GCC's search for stores that a load may read is quadratic in these tiles, which live in registers.
# With a bound of 50 instead of 1,000, and without carrying loads over iterations, a file compiles
# in half the time, to code of the same speed. Combinations of three and four instructions find
# nothing in intrinsics: without them, a file compiles in two thirds of the time, to the same size.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(brief --param=sccvn-max-alias-queries-per-access=50 --param=max-combine-insns=2
    -fno-predictive-commoning)
endif()
# weft_kernel_set(FOLDER SET FLAGS...): adds the kernels of FOLDER to weft_kernels, compiled for
# SET.
function(weft_kernel_set folder set)
  file(GLOB sources CONFIGURE_DEPENDS ${WEFT_ROOT}/src/kernels/${folder}/*.cc)
  if(folder STREQUAL set)
    file(GLOB shared CONFIGURE_DEPENDS ${WEFT_ROOT}/src/kernels/vector/*.cc)
    if(folder STREQUAL "avxvnni")  # its other kernels are those of AVX2
      list(FILTER shared INCLUDE REGEX "/(matmul|decoded|quantize_activations|products_[a-z0-9]+)\\.cc$")
    endif()
    list(APPEND sources ${shared})
  endif()
  if(last)  # behind what all targets have
    set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS ${last})
  endif()
  add_library(weft_kernels_${folder} OBJECT ${sources})
  target_link_libraries(weft_kernels_${folder} PRIVATE weft_base weft_hw weft_tensor)
  target_compile_definitions(weft_kernels_${folder} PRIVATE WEFT_SET=${set})
  target_compile_options(weft_kernels_${folder} PRIVATE ${ARGN} ${fewer} ${brief})
  target_sources(weft_kernels PRIVATE $<TARGET_OBJECTS:weft_kernels_${folder}>)
endfunction()
set(flags_avx2 -mavx2 -mfma -mf16c)
set(flags_avx512 ${flags_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512bf16 -mavx512vbmi
  -mprefer-vector-width=512 -Wno-maybe-uninitialized -Wno-uninitialized)
set(flags_avxvnni ${flags_avx2} -mavxvnni)
set(flags_amx ${flags_avx512})  # tiles are multiplied by inline assembly
set(flags_neon -march=armv8.2-a+dotprod)
set(flags_i8mm ${flags_neon}+i8mm)
foreach(level ${WEFT_LEVELS})
  set(set ${level})
  if(level STREQUAL "amx")
    set(set avx512)
  endif()
  weft_kernel_set(${level} ${set} ${flags_${level}})
endforeach()
