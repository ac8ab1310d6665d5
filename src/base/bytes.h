// Formats byte counts for people, in the largest binary unit that gives at least 1.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace weft {

// "512 bytes", "3.4 KiB", "96.6 MiB", "1.24 GiB", "2.31 TiB".
inline std::string BytesText(uint64_t bytes) {
    const auto size = static_cast<double>(bytes);
    if (bytes < 1024) return fmt::format("{} bytes", bytes);
    if (size < 1024.0 * 1024) return fmt::format("{:.1f} KiB", size / 1024);
    if (size < 1024.0 * 1024 * 1024) return fmt::format("{:.1f} MiB", size / (1024.0 * 1024));
    const double gib = size / (1024.0 * 1024 * 1024);
    return gib < 1024 ? fmt::format("{:.2f} GiB", gib) : fmt::format("{:.2f} TiB", gib / 1024);
}

}  // namespace weft
