// Whether the environment's words for Weft can be understood: what is misspelt would do nothing.
//
//     WEFT_MEMORY_MIB  a whole number from 1: memory that this host has for Weft (hw/cpu.h)
//     WEFT_CPU         reference, avx2, avx512, amx, neon or i8mm: the highest level that is used
//                      (hw/cpu.h)
//     WEFT_LOG         debug, info, warning or error (base/log.h)
//     WEFT_LOG_FORMAT  text or json
//
// An empty one is as good as none.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"

namespace weft {

// kUsage: names the variable, its value and what was expected.
Status CheckEnvironment();

// WEFT_MEMORY_MIB in bytes; none where it isn't set, or can't be read.
std::optional<uint64_t> MemoryOfEnvironment();

}  // namespace weft
