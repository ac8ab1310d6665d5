// Byte ranges of a model's files that one rank of a cluster reads, for `weft pull --shard`.
//
// RangesOfShard builds the rank's Program and performs every read of the loader and of the
// fingerprint, with zeros in place of the weights (model_files/weight_file.h). The ranges are thus
// right for any file format and layout, without a second description of either. Columns of a matrix
// (o_proj, down_proj of a tensor rank) are many short runs in a file. Gaps between runs of at most
// `gap_bytes` become part of the range, so such matrices mostly come whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/pull.h"

namespace weft::engine {

// A rank and the layout of its cluster, as in the commands' flags.
struct ShardOf {
    int rank = 0, ranks = 1;
    int tp = 0, pp = 0, ep = 0;  // 0: as the commands choose
    std::vector<double> split;
    // A request for a range costs about as much as this many bytes.
    uint64_t gap_bytes = 256 << 10;
};

// "1/3": rank 1 (the second) of 3. kUsage for anything else.
Result<ShardOf> ParseShard(const std::string& text);

// model: a path. If the present files do not determine all ranges, returns those needed to continue
// (is_all is false). Errors: kUsage and kUnsupported for layouts, as in the commands.
Result<hub::ShardRanges> RangesOfShard(const std::string& model, const ShardOf& shard);

}  // namespace weft::engine
