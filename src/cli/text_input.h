// Reads a text for a command, from a file of any kind or from standard input.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace weft::cli {

// path: "-" is standard input. Reads pipes to their end, without a time limit.
// Errors: kNotFound, kIo; kUnsupported: longer than most_bytes.
Result<std::string> ReadTextInput(const std::string& path, uint64_t most_bytes);
// The name of the input in messages.
std::string NameOfInput(const std::string& path);

}  // namespace weft::cli
