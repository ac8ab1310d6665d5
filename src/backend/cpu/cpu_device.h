// The CPU as a device: one team of pinned threads runs a Program's whole op list in lock-step.
//
// Compile lowers ops to kernel calls (lower.h), plans memory and places barriers. A barrier
// precedes a call only if calls since the last barrier wrote bytes that this call touches, or read
// bytes that it writes. Thread 0 drives communication.
#pragma once

#include <memory>
#include <vector>

#include "backend/device.h"
#include "hw/cpu.h"

namespace weft::backend {

struct CpuOptions {
    int threads = 1;
    std::vector<int> cores;     // threads are pinned to these; empty: not pinned
    bool cores_shared = false;  // more ranks than cores: do not spin for long
    CpuLevel level = CpuLevel::kReference;
};

// Positions per KV page on the CPU.
inline constexpr int64_t kPageTokens = 64;

// Returns the level of the reference kernels if `reference` is set, else the best level that this
// processor supports and this build has kernels for.
CpuLevel CpuLevelFor(bool reference);
DeviceInfo DescribeCpu(CpuLevel level);
MemoryPool CpuPool();
std::shared_ptr<Device> MakeCpuDevice(const CpuOptions& options);

}  // namespace weft::backend
