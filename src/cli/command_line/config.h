// Flags from a file: `weft serve --config weft.toml` reads each line of the file as a flag.
//
//     model = "/srv/model.gguf"     the MODEL
//     ctx = 8192                    --ctx=8192
//     no-prefix-cache = true        --no-prefix-cache (false: nothing)
//     access-log = false            --no-access-log
//     alias = ["a", "b"]            --alias=a --alias=b
//
// Flags on the command line override the file, by whichever of their names, and so does its MODEL.
// flag_file.h describes the format. Errors: kUsage, kNotFound, naming
// the file. A file has at most 1 MiB.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command_line/command_tree.h"

namespace weft::cli {

// words: a command line of `program` without its name. Replaces --config FILE by the file's flags.
Status ExpandConfig(const DescribedCommand& program, std::vector<std::string>& words);

}  // namespace weft::cli
