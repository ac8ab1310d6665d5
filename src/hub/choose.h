// Chooses the files of a repository that make up the model that a user named.
//
//     a path           that file; for a split GGUF, all its parts
//     Q4_K_M           the GGUF with this in its name, all its parts
//     (nothing)        a Hugging Face folder: settings, tokenizer, safetensors. If there are no
//                      safetensors, the only GGUF; if there is no GGUF, pytorch_model.bin
//
// The same rules find a model in the cache. Errors: kNotFound and kUsage list the available files,
// with sizes.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "hub/listing.h"
#include "hub/spec.h"

namespace weft::hub {

struct Choice {
    std::vector<RepoFile> files;
    // The file that a MODEL argument names; empty: the folder of the files.
    std::string model;
    // Not empty: the folder's shards must still be added (AddShards), from the contents of this
    // index file.
    std::string index;
};

Result<Choice> Choose(const std::vector<RepoFile>& files, const RepoSpec& spec);
// Adds the shards listed in the index. Errors: kNotFound for a shard that is not in `files`.
Status AddShards(Choice& choice, const std::vector<RepoFile>& files, std::string_view index,
                 const RepoSpec& spec);

// A model among the files of a snapshot, possibly incomplete.
struct Offer {
    Choice choice;     // the files that exist
    std::string what;  // FILE or TYPE that selects it in a MODEL argument; empty: the folder, or
                       // the only model
    bool whole = true;
};
// All models: the folder of safetensors (its completeness judged without its index), and each GGUF.
std::vector<Offer> OffersAmong(const std::vector<RepoFile>& files);
// The type in a GGUF file's name, such as "Q4_K_M"; "": none.
std::string TypeInName(std::string_view path);
// Whether `tag` occurs in the path as a separate word, ignoring case.
bool HasTag(std::string_view path, std::string_view tag);

}  // namespace weft::hub
