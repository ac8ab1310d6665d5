// Changes a file in place, as a damaged copy or an update of a model does.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace weft::support {

// Flips the lowest bit of the byte at `at`; -1: of one in the file's last third.
inline void FlipBit(const std::string& path, int64_t at = -1) {
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
    if (at < 0) at = size - size / 6;
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 1));
}

}  // namespace weft::support
