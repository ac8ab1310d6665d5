// The compute shaders of this build: GLSL of this folder, compiled by glslc to SPIR-V and embedded.
//
// A file NAME.comp gives the shader NAME, or those that lines at its head name, each with macros:
//
//     //: matvec_q8_0 -DQ8_0
//     //: matvec_q4_k -DQ4_K
//
// A line "//: NAME -D... : FEATURE" is left out where glslc lacks the feature (cmake/shaders.cmake
// probes them: coopmat). Where there is no glslc, there are no shaders, and no GPU is used.
//
// What all shaders keep to:
//   - Arguments are push constants, at most 128 bytes, in scalar layout: 64-bit addresses
//     (buffer_reference) first, then 32-bit numbers. A struct of C++ mirrors them by member.
//   - Subgroups have 4 to 128 invocations, which is never assumed; nor is gl_SubgroupSize read (a
//     driver may say 32 and run 16 at a time). The size of a workgroup is specialization constant
//     0.
//   - Rows are of the step. A row's bits do not depend on other rows or on how many there are; in
//     the shaders for steps of more than 8 rows they may differ from those for fewer.
//   - Sums are float32 in an order that depends on sizes alone. No float64.
//   - Scales of blocks are halves, often below 2^-14: halves.glsl, not unpackHalf2x16, which may
//   lose
//     these.
//   - Nothing outside the operands is read or written: tails are checked.
//   - No loop of over 65,000 iterations in an invocation.
//   - Arithmetic that must be `precise` stands in no loop that is unrolled: glslc -O copies the
//     loop's body without it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace weft::shaders {

// SPIR-V; empty where this build has none of this name.
std::span<const uint32_t> Find(std::string_view name);
std::vector<std::string_view> Names();
// Of the features above, those that glslc lacked.
std::vector<std::string_view> FeaturesLacking();

}  // namespace weft::shaders
