// Byte ranges of a model's files that one rank of a cluster reads, for `weft pull --shard`.
//
// RangesOfShard builds the rank's Program, runs the loader and the fingerprint with zeros in place
// of the weights (model_files/weight_file.h), and records every read. The ranges are thus right for
// any file format and layout. The columns of a matrix that a tensor rank holds (o_proj, down_proj)
// are many short byte ranges in a file. RangesOfShard joins ranges with a gap of at most
// `gap_bytes` between them, so such matrices are mostly downloaded whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/pull.h"

namespace weft::engine {

// A rank and the layout of its job, with the meaning of the commands' flags.
struct ShardOf {
    int rank = 0, ranks = 1;
    int tp = 0, pp = 0, ep = 0;  // 0: as the commands choose
    std::vector<double> split;
    // A request for one more range costs about as much time as this many bytes.
    uint64_t gap_bytes = 256 << 10;
};

// Parses "RANK/RANKS": "1/3" is rank 1 (the second) of 3. Errors: kUsage.
Result<ShardOf> ParseShard(const std::string& text);

// model: a path. If more of the files is needed to find all ranges, returns the ranges to download
// first (is_all is false). Errors: kUsage and kUnsupported for layouts, as in the commands.
Result<hub::ShardRanges> RangesOfShard(const std::string& model, const ShardOf& shard);

}  // namespace weft::engine
