// The pools in which a device keeps the values of a Program (memory_layout.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::program {

// kKept and kBrief hold activations: each slot has its own kKept, and all slots share kBrief.
// kNone: no op uses the value.
enum class Pool : uint8_t { kNone, kWeight, kGradient, kOptimizer, kCache, kInput, kKept, kBrief };
inline constexpr size_t kPools = 8;

}  // namespace weft::program
