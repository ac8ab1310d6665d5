// The host resources that a rank's device may use, and the host and device memory that the rank
// needs. Inference and training share this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "backend/device_list.h"
#include "cluster/cluster.h"
#include "cluster/memory_check.h"
#include "hw/memory.h"

namespace weft::engine {

using backend::MayAllUseHostCores;

// Fills in all options but local_rank. threads 0: all cores of the rank. Pins threads if no two
// ranks share a core.
backend::DeviceOptions DeviceOptionsOf(const cluster::Cluster& cluster, int threads, bool reference,
                                       bool exact = false);

// DeviceOptions::local_rank: index among this host's ranks with the same name in `devices`.
int LocalRankOf(const cluster::Cluster& cluster, std::string_view devices);

// Memory needs of a rank: device_bytes of the device with this pool, and host_bytes of the process.
// host_free: free memory of a host whose device has its own memory; 0: unknown.
std::vector<cluster::MemoryNeed> MemoryNeeds(const backend::MemoryPool& pool,
                                             const std::string& name, uint64_t device_bytes,
                                             uint64_t host_bytes, uint64_t host_free);

// Adds `bytes` of the process to the need of its control group. A container has its own limit
// besides the machine's memory.
void AddGroup(std::vector<cluster::MemoryNeed>& needs, const GroupMemory& group, uint64_t bytes);

// Memory needs of an open device and of this process. again: the process already holds most of the
// memory.
std::vector<cluster::MemoryNeed> MemoryNeeds(
    const backend::Device& device, uint64_t device_bytes, uint64_t host_bytes, bool again = false,
    const std::optional<GroupMemory>& group = OwnGroupMemory());

// If the rank has lost its device: an error that names the rank; otherwise `error`.
Error WithDevice(const cluster::Cluster& cluster, const Status& device, Error error);

}  // namespace weft::engine
