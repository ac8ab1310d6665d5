// The contents of the cache folder: every model of every repository, whether complete, partly
// fetched, or a rank's shard; and the removal of a model.
//
// The folder is shared with huggingface_hub (cache.h), so it may contain anything: links that point
// outside it, unrelated folders, unfinished files of other programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/spec.h"

namespace weft::hub {

enum class HeldState {
    kWhole,
    kShard,     // downloaded by 'weft pull --shard'
    kPartial,   // some of its files are missing
    kUnfetched  // only unfinished files, whose names are not known
};
const char* HeldStateName(HeldState state);

struct CachedModel {
    RepoSpec spec;       // Text() is its MODEL argument
    std::string path;    // where the argument leads; for kUnfetched, the repository's folder
    std::string commit;  // empty: kUnfetched
    std::vector<std::string> files;      // its own files, as paths in the cache folder
    uint64_t bytes = 0;                  // of all its files, as far as known
    uint64_t held_bytes = 0;             // bytes present
    int64_t modified_s = 0, used_s = 0;  // seconds since 1970: the latest times of its files
    HeldState state = HeldState::kWhole;
};

// All models, in alphabetical order. A missing folder counts as empty. Errors: kIo if the cache
// folder can't be read. Unreadable entries below it are skipped; `unread` receives a line for each.
Result<std::vector<CachedModel>> ListCached(const Config& config,
                                            std::vector<std::string>* unread = nullptr);

// The models that the argument names (with or without "hf:", or a short name); without FILE or
// TYPE, all models of the repository. Errors: kNotFound if the repository has no such model.
Result<std::vector<CachedModel>> MatchCached(const std::vector<CachedModel>& models,
                                             const std::string& word);

struct Removed {
    uint64_t freed_bytes = 0;
    uint64_t kept_bytes = 0;  // of contents that another revision or shard also uses
};
// Removes the model's links, and contents that nothing else in its repository links to; with the
// last model, the repository. Follows no link out of the cache folder. Errors: kDenied (another
// program is downloading it, or its folder is elsewhere), kIo.
Result<Removed> RemoveCached(const Config& config, const CachedModel& model);

}  // namespace weft::hub
