#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace weft {

void CheckFailed(const char* file, int line, const char* what) {
    std::fprintf(stderr, "weft: bug: %s:%d: CHECK(%s) failed. Please report this line.\n", file,
                 line, what);
    std::abort();
}

}  // namespace weft
