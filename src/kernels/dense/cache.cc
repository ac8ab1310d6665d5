#include "kernels/dense/cache.h"

#include <unistd.h>

#include <algorithm>

namespace weft::kernels::dense {

int64_t L2Bytes() {
    static const int64_t bytes =
        std::clamp<int64_t>(::sysconf(_SC_LEVEL2_CACHE_SIZE), 256 << 10, 4 << 20);
    return bytes;
}

}  // namespace weft::kernels::dense
