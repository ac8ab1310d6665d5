// The size of the cache that blocks of dense kernels are cut for.
#pragma once

#include <cstdint>

namespace weft::kernels::dense {

// Bytes of the L2 cache of one core as the system states it (read once); between 256 KiB, which is
// also the guess where nothing is stated, and 4 MiB.
int64_t L2Bytes();

}  // namespace weft::kernels::dense
