// The memory that a job's ranks on this host will need, for a server that loads the model later.
// Chooses each rank's device and the size of the KV cache as the ranks do when they load
// (engine/rank/rank_plan.cc).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "engine/job.h"
#include "model_files/model_file.h"

namespace weft::plan {

// Bytes of each memory of this host: "" is the host's own, others have the device's name.
using MemoryBytes = std::map<std::string, uint64_t>;

struct LocalDevice {
    std::string name;
    backend::MemoryPool pool{};
};
// By rank of this host: the devices that it tries, best first. --device auto: all GPUs, then "cpu".
using LocalDevices = std::vector<std::vector<LocalDevice>>;

// The devices of the first `here` of `ranks` ranks. Errors: those of DescribeDevice and
// DescribePool.
Result<LocalDevices> DevicesHere(const engine::Job& job, int ranks, size_t here);
// The free bytes now of the memories of these devices and of the host; a memory whose size is
// unknown is omitted.
MemoryBytes FreeBytes(const LocalDevices& devices);

// Sets the sizes of the cache (engine/rank/cache_size.h), and returns the bytes that the job's
// first ranks need of each memory of this host. devices: devices of these ranks. ranks: number of
// ranks of the whole job. Errors: those of OpenModel and PlanShards.
Result<MemoryBytes> NeedsHere(engine::Job& job, int ranks, const LocalDevices& devices,
                              const MemoryBytes& free);

}  // namespace weft::plan
