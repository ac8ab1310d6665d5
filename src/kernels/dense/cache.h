// The cache size for which dense kernels choose their blocks.
#pragma once

#include <cstdint>

namespace weft::kernels::dense {

// Size in bytes of the L2 cache of one core as the system reports it (read once), limited to the
// range from 256 KiB to 4 MiB. 256 KiB if the system reports no size.
int64_t L2Bytes();

}  // namespace weft::kernels::dense
