#include "cli/npy.h"

#include <bit>
#include <cstring>
#include <vector>

#include "base/file.h"

namespace weft::cli {

Status WriteNpy(const std::string& path, std::span<const float> values, int64_t rows,
                int64_t cols) {
    static_assert(std::endian::native == std::endian::little);
    WEFT_CHECK(static_cast<int64_t>(values.size()) == rows * cols);
    constexpr size_t kHead = 10;  // magic, version, length of the dictionary
    std::string dictionary =
        fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
    while ((kHead + dictionary.size() + 1) % 64 != 0) dictionary += ' ';
    dictionary += '\n';
    std::string head("\x93NUMPY\x01\x00", 8);
    head += static_cast<char>(dictionary.size() & 0xff);
    head += static_cast<char>(dictionary.size() >> 8);
    head += dictionary;
    std::vector<std::byte> file(head.size() + values.size_bytes());
    std::memcpy(file.data(), head.data(), head.size());
    if (!values.empty()) std::memcpy(file.data() + head.size(), values.data(), values.size_bytes());
    return WriteFile(path, file);
}

}  // namespace weft::cli
