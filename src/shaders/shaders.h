// The compute shaders of this build: GLSL files of this folder, compiled by glslc to SPIR-V and
// embedded.
//
// A file NAME.comp gives the shader NAME, or the shaders named by lines at its start, each with
// macros:
//
//     //: adam_update -DADAM
//     //: matvec_@ -D@ for PLAIN Q4_K
//
// The second line declares one shader for each type of weights: matvec_f32 -DF32, ... matvec_q4_k
// -DQ4_K. A line "//= PLAIN F32 ..." of types.glsl makes a list of types.
//
// A line "//: NAME -D... : FEATURE" is skipped if glslc lacks the feature (cmake/shaders.cmake
// tests it: coopmat). A build without glslc has no shaders and uses no GPU.
//
// Rules for all shaders:
//   - Arguments are push constants, at most 128 bytes, in scalar layout: 64-bit addresses
//     (buffer_reference) first, then 32-bit numbers. A C++ struct has the same members.
//   - Subgroups have 4 to 128 invocations. Shaders assume no size, and do not read gl_SubgroupSize
//     (a driver may report 32 and run 16 at a time). The workgroup size is specialization constant
//     0.
//   - Rows are rows of the step. A row's bits do not depend on other rows or on their number,
//     except that shaders for steps of more than 8 rows may give other bits than those for fewer.
//   - Sums are float32, in an order that depends only on sizes. No float64.
//   - Block scales are float16, often below 2^-14: use halves.glsl instead of unpackHalf2x16, which
//     may flush these to zero.
//   - Nothing outside the operands is read or written: tails are checked.
//   - No invocation runs a loop of more than 65,000 iterations.
//   - `precise` arithmetic must not be in an unrolled loop: glslc -O copies the loop's body without
//     it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace weft::shaders {

// SPIR-V; empty if this build has no shader of this name.
std::span<const uint32_t> Find(std::string_view name);
std::vector<std::string_view> Names();
// The features (": FEATURE" above) that glslc lacked.
std::vector<std::string_view> FeaturesLacking();

}  // namespace weft::shaders
