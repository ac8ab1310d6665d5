// The CPU as a device: one team of pinned threads runs a Program's whole op list in lock-step.
//
// Compile lowers ops to kernel calls (lower.h), plans memory and places barriers. A call waits for
// the team only if it touches bytes that a call since the last barrier wrote, or writes bytes that
// such a call read. Thread 0 drives communication.
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

// The level of the reference kernels if `reference`, else the best level that this processor
// supports.
CpuLevel CpuLevelFor(bool reference);
DeviceInfo DescribeCpu(CpuLevel level);
MemoryPool CpuPool();
std::shared_ptr<Device> MakeCpuDevice(const CpuOptions& options);

}  // namespace weft::backend
