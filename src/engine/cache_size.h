// Chooses the size of a server's KV cache: enough for all sequences, as far as device memory is
// free.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/job.h"

namespace weft::engine {

// Rounds job.ctx and job.kv_tokens to whole pages of the device, limits job.ctx to the model's
// context, and fills in whichever of the two is 0. Then CompleteJob chooses ctx, and kv_tokens is
// enough for options.max_seqs sequences of full length, or as many tokens as fit on this host, but
// at least one sequence. hosts: number of hosts that share the weights. servers: number of servers
// that share the free memory. Reads the headers of the model and of the draft model.
// Errors: kUsage (a context longer than the model's, a cache too small for one sequence), those of
// OpenModel and of DescribeDevice.
Status SizeCache(Job& job, const EngineOptions& options, size_t hosts, size_t servers = 1);

}  // namespace weft::engine
