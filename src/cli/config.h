// Flags from a file: `weft serve --config weft.toml` is `weft serve` with the lines as flags.
//
//     model = "/srv/model.gguf"     the MODEL
//     ctx = 8192                    --ctx=8192
//     no-prefix-cache = true        --no-prefix-cache (false: nothing)
//     alias = ["a", "b"]            --alias=a --alias=b
//
// What stands on the command line wins over the file (by the flag's long name).
// The format is TOML's keys and values (toml.io), without tables. Errors: kUsage, kNotFound, naming
// the file. At most 1 MiB.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace weft::cli {

// `words`: a command line without the program's name. Replaces --config FILE by what the file says.
Status ExpandConfig(std::vector<std::string>& words);

}  // namespace weft::cli
