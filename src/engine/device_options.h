// What of its host a rank gives to its device, and needs of the host's memory and of the device's:
// the same for inference and for training.
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

// threads 0: all cores of the rank. Threads are pinned where no two ranks share a core. All but
// local_rank.
backend::DeviceOptions DeviceOptionsOf(const cluster::Cluster& cluster, int threads, bool reference,
                                       bool exact = false);

// DeviceOptions::local_rank: among the ranks of this host whose name in `devices` is the same.
int LocalRankOf(const cluster::Cluster& cluster, std::string_view devices);

// Of what a device with such a pool holds, and of what its process takes of the host beside it;
// host_free: of a host whose device has memory of its own, 0: not known.
std::vector<cluster::MemoryNeed> MemoryNeeds(const backend::MemoryPool& pool,
                                             const std::string& name, uint64_t device_bytes,
                                             uint64_t host_bytes, uint64_t host_free);

// `bytes` of what the process takes of the host it takes of its control group, too: containers of
// one machine have limits of their own beside what the machine has for all.
void AddGroup(std::vector<cluster::MemoryNeed>& needs, const GroupMemory& group, uint64_t bytes);

// Of what the device holds, and of what this process takes beside it. again: the process has most
// of it already.
std::vector<cluster::MemoryNeed> MemoryNeeds(
    const backend::Device& device, uint64_t device_bytes, uint64_t host_bytes, bool again = false,
    const std::optional<GroupMemory>& group = OwnGroupMemory());

// The error of a rank among several that has lost its device, naming the rank; otherwise `error`.
Error WithDevice(const cluster::Cluster& cluster, const Status& device, Error error);

}  // namespace weft::engine
