// A file of compiled kernels: the driver's data after a header that detects damage (some drivers
// trust their input). A folder of such files has a bound.
//
// Thread: any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace weft::gpu {

// Empty if the file is missing or damaged.
std::vector<std::byte> ReadCacheFile(const std::string& path);
// Creates missing folders. Deletes files with the same extension that have
// not been read or written for the longest time, until these files have at most `most_bytes`.
// Errors: as OutputFile, but no error if another process is writing the file.
inline constexpr uint64_t kMostCacheBytes = 1ull << 28;
Status WriteCacheFile(const std::string& path, std::span<const std::byte> data,
                      uint64_t most_bytes = kMostCacheBytes);
// Logs only the first failure of a device's kernels; `told` belongs to the device.
void WarnNotStored(const Status& written, std::atomic<bool>& told);

}  // namespace weft::gpu
