// What is in the cache folder: every model of every repository there, whole, fetched in part, or a
// rank's shard; and the removal of one.
//
// The folder is shared with huggingface_hub (cache.h), so nothing in it is taken for granted: links
// that lead out of it, folders of other things, unfinished files of other programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/spec.h"

namespace weft::hub {

enum class HeldState {
    kWhole,
    kShard,     // what 'weft pull --shard' fetched
    kPartial,   // some of its files are missing
    kUnfetched  // nothing but unfinished files, whose names are not known
};
const char* HeldStateName(HeldState state);

struct CachedModel {
    RepoSpec spec;       // Text() is the MODEL word for it
    std::string path;    // what the word leads to; of kUnfetched ones the repository's folder
    std::string commit;  // empty: kUnfetched
    std::vector<std::string> files;      // that are its own, as paths in the cache folder
    uint64_t bytes = 0;                  // of all its files, as far as that is known
    uint64_t held_bytes = 0;             // that are there
    int64_t modified_s = 0, used_s = 0;  // seconds since 1970: the youngest times of its files
    HeldState state = HeldState::kWhole;
};

// In alphabetical order. An absent folder is an empty one. kIo: it can't be read. What can't be
// read below it is left out; unread gets a line for each such folder or file.
Result<std::vector<CachedModel>> ListCached(const Config& config,
                                            std::vector<std::string>* unread = nullptr);

// Those of `models` that the word names (with or without "hf:", or a short name), among them all
// of a repository where it has no FILE or TYPE. kNotFound: none.
Result<std::vector<CachedModel>> MatchCached(const std::vector<CachedModel>& models,
                                             const std::string& word);

struct Removed {
    uint64_t freed_bytes = 0;
    uint64_t kept_bytes = 0;  // of contents that another revision or shard has, too
};
// Removes the model's links, and those contents that nothing else in its repository leads to; with
// the last one the repository. Follows no link out of the cache folder. kDenied: another program
// is fetching it, or its folder lies elsewhere. kIo.
Result<Removed> RemoveCached(const Config& config, const CachedModel& model);

}  // namespace weft::hub
