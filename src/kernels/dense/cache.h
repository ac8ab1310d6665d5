// The cache size for which dense kernels choose their blocks.
#pragma once

#include <cstdint>

namespace weft::kernels::dense {

// Bytes of the L2 cache of one core as the system reports it (read once), limited to 256 KiB to 4
// MiB. 256 KiB if the system reports none.
int64_t L2Bytes();

}  // namespace weft::kernels::dense
