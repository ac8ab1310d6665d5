// Lengths of time on the command line, as --time-limit and --wait take them.
#pragma once

#include <string>

#include "base/result.h"

namespace weft::cli {

// In seconds, above 0: "90", "90s", "30m", "4h", "2d", "1h30m", and Slurm's "4:00:00". ("1h30" may
// mean minutes or seconds: it is refused.) flag: for the error. Errors: kUsage.
Result<double> ParseTime(const std::string& flag, const std::string& text);

}  // namespace weft::cli
