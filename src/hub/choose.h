// Which files of a repository make up the model that a user named.
//
//     a path           that file; of a split GGUF, all its parts
//     Q4_K_M           the GGUF with this in its name, all its parts
//     (nothing)        a Hugging Face folder: settings, tokenizer, safetensors. Where there are no
//                      safetensors, the only GGUF
//
// The same rules find a model in the cache. kNotFound and kUsage list what there is, with sizes.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "hub/listing.h"
#include "hub/spec.h"

namespace weft::hub {

struct Choice {
    std::vector<RepoFile> files;
    // The file that a MODEL word would name; empty: the folder they are in.
    std::string model;
    // Set where the shards of a folder are still to be added, once this file has been read.
    std::string index;
};

Result<Choice> Choose(const std::vector<RepoFile>& files, const RepoSpec& spec);
// Adds the shards that the index names. kNotFound for one that is not among `files`.
Status AddShards(Choice& choice, const std::vector<RepoFile>& files, std::string_view index,
                 const RepoSpec& spec);

// A model among the files of a snapshot, of which some may be missing.
struct Offer {
    Choice choice;     // the files that are there
    std::string what;  // what names it after the repository's name; empty: the folder, or the only
    bool whole = true;
};
// All of them: the folder of safetensors (whole as far as one can tell without its index), and each
// GGUF.
std::vector<Offer> OffersAmong(const std::vector<RepoFile>& files);
// The type that a GGUF file has in its name, as "Q4_K_M"; "" where it has none.
std::string TypeInName(std::string_view path);
// Whether `tag` stands in the path as a word, in any case.
bool HasTag(std::string_view path, std::string_view tag);

}  // namespace weft::hub
