// The host resources that a rank's device may use, and the host and device memory that the rank
// needs. Inference and training share this code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "backend/device_list.h"
#include "cluster/cluster.h"
#include "cluster/worker/memory_check.h"
#include "hw/memory.h"

namespace weft::engine {

using backend::MayAllUseHostCores;

// One thread for each core of a rank, but no more than the whole processors of a quota
// (hw/control_group.h): the kernel would stop all threads in turn.
int DefaultThreads(size_t cores, std::optional<double> quota);

// Fills in all DeviceOptions but local_rank. threads = 0: DefaultThreads. Threads are pinned if no
// two ranks share a core. `cluster` must outlive the device's steps.
backend::DeviceOptions DeviceOptionsOf(const cluster::Cluster& cluster, int threads, bool reference,
                                       bool exact = false);

// DeviceOptions::local_rank: the rank's index among those ranks of this host that have the same
// device name in `devices` (a --device list).
int LocalRankOf(const cluster::Cluster& cluster, std::string_view devices);

// Memory needs of a rank: device_bytes from the device's `pool`, and host_bytes for the process.
// host_free: free memory of a host whose device has its own memory; 0: unknown.
std::vector<cluster::MemoryNeed> MemoryNeeds(const backend::MemoryPool& pool,
                                             const std::string& name, uint64_t device_bytes,
                                             uint64_t host_bytes, uint64_t host_free);

// Adds a need of `bytes` from the process's control group: a container has its own memory limit,
// besides the machine's memory.
void AddGroup(std::vector<cluster::MemoryNeed>& needs, const GroupMemory& group, uint64_t bytes);

// Memory needs of an open device and of this process. again: the process already holds most of this
// memory; subtracts what it holds.
std::vector<cluster::MemoryNeed> MemoryNeeds(
    const backend::Device& device, uint64_t device_bytes, uint64_t host_bytes, bool again = false,
    const std::optional<GroupMemory>& group = OwnGroupMemory());

// Returns `error` or, if a rank of several has lost its device, kPeerLost that names the rank.
// device: the status of this rank's device.
Error WithDevice(const cluster::Cluster& cluster, const Status& device, Error error);

}  // namespace weft::engine
