// Reads a whole file.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace weft::support {

// Empty: the file cannot be read.
inline std::string ReadBytes(const std::filesystem::path& path) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    std::string bytes(error ? 0 : size, '\0');
    std::ifstream file(path, std::ios::binary);
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    bytes.resize(static_cast<size_t>(file.gcount()));
    return bytes;
}

}  // namespace weft::support
