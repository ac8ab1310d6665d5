// Brings a model from the Hugging Face Hub into the cache folder: asks which commit the revision
// is, lists its files, chooses (choose.h), checks the space, and downloads what is not there
// (download.h), file after file, each under its lock. The revision is remembered when all is there.
//
// PullShard brings only what one rank of a cluster reads: settings and tokenizer whole, and ranges
// of the files of weights, into partial files (part.h) that other shards may be added to, and that
// a later Pull goes on from. Which ranges these are is for somebody to say who knows models.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/listing.h"
#include "hub/part.h"
#include "hub/spec.h"

namespace weft::hub {

struct PulledFile {
    RepoFile file;
    uint64_t fetched_bytes = 0, resumed_bytes = 0;
    bool cached = false;       // it was there, whole
    bool is_partial = false;   // of a shard:
    uint64_t shard_bytes = 0;  // how much of it the shard is; all, where not is_partial
};

struct Pulled {
    std::string commit;
    std::string path;  // of the GGUF file, or of the folder: what weft run takes
    std::vector<PulledFile> files;
    // Of a shard, total_bytes are the shard's.
    uint64_t total_bytes = 0, fetched_bytes = 0;
    double seconds = 0;
};

struct PullState {
    const RepoFile* file = nullptr;  // that is being fetched
    size_t file_number = 0, file_count = 0;
    bool waiting = false;  // for another program that fetches the same
    uint64_t there_bytes = 0, total_bytes = 0, fetched_bytes = 0;  // of all files
};
using OnPull = std::function<void(const PullState&)>;

// on_state: called by the calling thread, ten times a second at most; may be empty.
// Errors: kUsage, kNotFound, kDenied, kCorrupt, kTimeout, kIo; kCancelled once config.stop is set.
// config.offline: what is there whole, without its files' list; else kDenied.
// All but kCorrupt keep what came: the next call goes on from it.
Result<Pulled> Pull(const Config& config, const RepoSpec& spec, const OnPull& on_state);

// Ranges of files, by path. is_all: with these, nothing is missing; otherwise they are needed to
// say what else is (a header that is longer than what is there).
struct ShardRanges {
    std::map<std::string, RangeSet> files;
    bool is_all = false;
};
// model: a GGUF file or a folder, as a MODEL word names it, of which some parts can be read: the
// first kShardHeadBytes of each file, and all ranges that were asked for before.
using PlanShard = std::function<Result<ShardRanges>(const std::string& model)>;
inline constexpr uint64_t kShardHeadBytes = 1 << 20;

// Errors: Pull's, and those of `plan`, before any weights are fetched.
Result<Pulled> PullShard(const Config& config, const RepoSpec& spec, const PlanShard& plan,
                         const OnPull& on_state);

}  // namespace weft::hub
