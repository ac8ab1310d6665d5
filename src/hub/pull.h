// Brings a model from the Hugging Face Hub into the cache folder: asks which commit the revision
// is, lists its files, chooses (choose.h), checks the space, and downloads what is not there
// (download.h), file after file, each under its lock. The revision is remembered when all is there.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/listing.h"
#include "hub/spec.h"

namespace weft::hub {

struct PulledFile {
    RepoFile file;
    uint64_t fetched_bytes = 0, resumed_bytes = 0;
    bool cached = false;  // it was there, whole
};

struct Pulled {
    std::string commit;
    std::string path;  // of the GGUF file, or of the folder: what weft run takes
    std::vector<PulledFile> files;
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
// All but kCorrupt keep what came: the next call goes on from it.
Result<Pulled> Pull(const Config& config, const RepoSpec& spec, const OnPull& on_state);

}  // namespace weft::hub
