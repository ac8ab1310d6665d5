// Whether what all ranks need fits into the memory of their machines, asked before any is touched:
// a rank that is killed for memory later can't say why.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "cluster/cluster.h"

namespace weft::cluster {

// needed_bytes: of this rank, what it has already not counted. what: "model.gguf"; of: what the
// bytes are; advice: what to do about it. All ranks call it.
// Errors: kOutOfMemory, the same on all ranks, naming the machine and its ranks' bytes; links'.
Status CheckMemory(Cluster& cluster, uint64_t needed_bytes, const std::string& what,
                   const std::string& of, const std::string& advice);

}  // namespace weft::cluster
