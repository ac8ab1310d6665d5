// Parses lists of sizes: "64,8192,1M", ranges "64:1M:x4" and "64:512:+64".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace weft::cli {

// Sizes in the given order. K, M and G are powers of 1024; a range without a step doubles.
// Errors: kUsage (an invalid size, a size outside least..most, more than 256 sizes).
Result<std::vector<int64_t>> ParseSizes(const std::string& text, int64_t least, int64_t most);

}  // namespace weft::cli
