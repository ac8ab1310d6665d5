// A file of compiled kernels: the driver's data after a header that detects damage (some drivers
// trust their input). A folder of such files has a bound.
//
// Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weft::gpu {

// Empty if the file is missing or damaged.
std::vector<std::byte> ReadCacheFile(const std::string& path);
// Creates missing folders. A failure is a warning. Deletes files with the same extension that have
// not been read or written for the longest time, until those of the folder have at most
// `most_bytes`.
inline constexpr uint64_t kMostCacheBytes = 1ull << 28;
void WriteCacheFile(const std::string& path, std::span<const std::byte> data,
                    uint64_t most_bytes = kMostCacheBytes);

}  // namespace weft::gpu
