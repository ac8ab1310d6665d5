// The limit of the descriptors that this process may have open (RLIMIT_NOFILE).
#pragma once

#include <cstdint>

namespace weft {

// Raises the limit to `wanted`, or as far as the system allows. Returns the limit.
uint64_t AllowOpenFiles(uint64_t wanted);

}  // namespace weft
