// Downloads a model, or a split of a data set, from the Hugging Face Hub into the cache folder:
// gets the revision's commit, lists its files, chooses (choose.h, choose_data.h), checks the disk
// space, and downloads missing files (download.h) one after another, each under its lock. When all
// files are there, records the revision.
//
// PullShard downloads only what one rank of a cluster reads: settings and tokenizer completely, and
// ranges of the weight files, as partial files (part.h). Other shards may be added to these files,
// and a later Pull completes them. The caller computes the ranges (PlanShard).
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
    bool cached = false;       // was already there, complete
    bool is_partial = false;   // part of a shard:
    uint64_t shard_bytes = 0;  // bytes of the shard in it; all bytes if not is_partial
};

struct Pulled {
    std::string commit;
    // The GGUF file or the folder of a model, which is an argument for weft run; or the folder of a
    // data set.
    std::string path;
    std::vector<PulledFile> files;
    // For a shard, total_bytes counts only the shard.
    uint64_t total_bytes = 0, fetched_bytes = 0;
    double seconds = 0;
};

struct PullState {
    const RepoFile* file = nullptr;  // the file being downloaded
    size_t file_number = 0, file_count = 0;
    bool waiting = false;  // for another program that downloads the same file
    uint64_t there_bytes = 0, total_bytes = 0, fetched_bytes = 0;  // of all files
};
using OnPull = std::function<void(const PullState&)>;

// on_state: called by the calling thread, at most ten times a second; may be empty.
// config.offline: returns the model if it is completely in the cache, else kDenied.
// Errors: kUsage, kNotFound, kDenied, kCorrupt, kTimeout, kIo; kCancelled once config.stop is set.
// After all errors except kCorrupt, downloaded data stays, and the next call continues from it.
Result<Pulled> Pull(const Config& config, const RepoSpec& spec, const OnPull& on_state);

// Ranges of files, by path. is_all: the shard needs nothing more; otherwise these ranges are needed
// to compute the rest (such as a header longer than the bytes present).
struct ShardRanges {
    std::map<std::string, RangeSet> files;
    bool is_all = false;
};
// model: a GGUF file or a folder, as a MODEL argument. Only parts of it can be read: the first
// kShardHeadBytes of each file, and all ranges requested before.
using PlanShard = std::function<Result<ShardRanges>(const std::string& model)>;
inline constexpr uint64_t kShardHeadBytes = 1 << 20;

// Errors: as Pull; errors of `plan`, before any weights are downloaded.
Result<Pulled> PullShard(const Config& config, const RepoSpec& spec, const PlanShard& plan,
                         const OnPull& on_state);

}  // namespace weft::hub
