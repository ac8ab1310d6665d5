#include "base/check.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/standard_error.h"

namespace weft {

void CheckFailed(const char* file, int line, const char* what) {
    WriteErr(fmt::format("weft: bug: {}:{}: CHECK({}) failed. Please report this line.\n", file,
                         line, what),
             true);
    FlushErr(1000);
    std::abort();
}

}  // namespace weft
