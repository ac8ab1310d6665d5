// A file of compiled kernels: the driver's data after a header that detects damage (some drivers
// trust their input).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace weft::gpu {

// Empty if the file is missing or damaged.
std::vector<std::byte> ReadCacheFile(const std::string& path);
// Creates missing folders. A failure is a warning.
void WriteCacheFile(const std::string& path, std::span<const std::byte> data);

}  // namespace weft::gpu
