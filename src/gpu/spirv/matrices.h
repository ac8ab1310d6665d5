// The definitions of 16 x 16 matrices of a subgroup in the text of a kernel.
#pragma once

#include <string_view>

namespace weft::gpu::spirv {

inline constexpr std::string_view kMatrices = "";

}  // namespace weft::gpu::spirv
