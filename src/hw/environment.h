// Checks the environment variables that Weft reads, so that a misspelled value is not silently
// ignored.
//
//     WEFT_MEMORY_MIB  a whole number of at least 1: MiB of this host's memory that Weft may use
//                      (hw/cpu.h)
//     WEFT_CPU         reference, avx2, avxvnni, avx512, amx, neon or i8mm: the highest CPU level
//                      that is used (hw/cpu.h)
//     WEFT_LOG         debug, info, warning or error (base/log.h)
//     WEFT_LOG_FORMAT  text or json
//
// An empty variable counts as not set.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"

namespace weft {

// Errors: kUsage, with the variable, its value and the expected values.
Status CheckEnvironment();

// The memory limit of WEFT_MEMORY_MIB, in bytes; nullopt if the variable is not set or not valid.
std::optional<uint64_t> MemoryOfEnvironment();

}  // namespace weft
