// Which bytes of a model's files one rank of a cluster reads: for `weft pull --shard`.
//
// The rank's Program is built, and every read that loading its weights and comparing fingerprints
// would make is made, with zeros in place of the weights (model_files/weight_file.h): so the ranges
// are those of any file format and layout, without another description of either. Columns of a
// matrix (o_proj, down_proj of a tensor rank) lie as many short runs in a file: where the gaps
// between runs are no longer than `gap_bytes`, what is between them is taken, too, so that such
// matrices mostly come whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/pull.h"

namespace weft::engine {

// A rank and the layout that its cluster will have, as the flags of the commands say it.
struct ShardOf {
    int rank = 0, ranks = 1;
    int tp = 0, pp = 0, ep = 0;  // 0: chosen as the commands do
    std::vector<double> split;
    // A request for a range costs about as much as so many bytes.
    uint64_t gap_bytes = 256 << 10;
};

// "1/3": rank 1 (the second) of 3. kUsage for anything else.
Result<ShardOf> ParseShard(const std::string& text);

// model: a path. Where what is there of its files is not enough to say: what is needed to go on
// (is_all is false). Errors: kUsage and kUnsupported for layouts, as the commands have them.
Result<hub::ShardRanges> RangesOfShard(const std::string& model, const ShardOf& shard);

}  // namespace weft::engine
