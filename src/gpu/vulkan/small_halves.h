// Half floats below 2^-14, in which block scales often are. A driver may flush them to zero in a
// conversion, so shaders/halves.glsl converts with integers. A kernel that declares the execution
// mode DenormPreserve converts in one instruction instead; only some devices have this mode.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft::gpu {

// The specialization constant of shaders/halves.glsl: whether conversions keep such halves.
inline constexpr uint32_t kSmallHalvesConstant = 34;

// The widths of floats for which a kernel declares DenormPreserve. kHalvesAndDoubles: for drivers
// that have one mode for both.
enum class SmallHalves { kNo, kHalves, kHalvesAndDoubles };

// Returns the SPIR-V module (version 1.4 or later) with these modes; empty if the module does not
// have the constant, or `keeps` is kNo.
std::vector<uint32_t> KeepSmallHalves(std::span<const uint32_t> spirv, SmallHalves keeps);

}  // namespace weft::gpu
