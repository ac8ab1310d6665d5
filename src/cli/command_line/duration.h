// Parses durations on the command line (--time-limit, --wait).
#pragma once

#include <string>

#include "base/result.h"

namespace weft::cli {

// Seconds, above 0: "90", "90s", "30m", "4h", "2d", "1h30m", "4:00:00", "2:04:00:00" with days, and
// Slurm's "2-4" (days and hours) and "2-04:00:00". (Rejects "1h30", which is ambiguous: minutes or
// seconds.) flag: for the error. Errors: kUsage.
Result<double> ParseTime(const std::string& flag, const std::string& text);

}  // namespace weft::cli
