#include "cli/text_input.h"

#include <unistd.h>

#include "base/file.h"

namespace weft::cli {

std::string NameOfInput(const std::string& path) {
    return path == "-" ? "standard input" : path;
}

Result<std::string> ReadTextInput(const std::string& path, uint64_t most_bytes) {
    if (path == "-") return ReadTextStream(STDIN_FILENO, NameOfInput(path), most_bytes);
    return ReadTextStream(path, most_bytes);
}

}  // namespace weft::cli
