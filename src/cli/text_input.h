// Texts that a command reads: of a file of any kind, or of standard input.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace weft::cli {

// path: "-" is standard input. Pipes are read to their end, however long it takes.
// Errors: kNotFound, kIo; kUnsupported: longer than most_bytes.
Result<std::string> ReadTextInput(const std::string& path, uint64_t most_bytes);
// What messages call it.
std::string NameOfInput(const std::string& path);

}  // namespace weft::cli
