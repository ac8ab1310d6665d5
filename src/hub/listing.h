// What the Hub's API says of a repository: which commit a revision is, and the files of a commit.
//
// Answers are hostile text: they are bounded before they come here (kMostPageBytes), every path is
// checked (IsSafePath), sizes and names of contents too; one bad entry refuses the whole answer.
// Format: https://huggingface.co/docs/hub/api, GET /api/models/OWNER/NAME/tree/REVISION.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::hub {

constexpr uint64_t kMostPageBytes = 8 << 20;
constexpr size_t kMostFiles = 100'000;

// A file of a repository. Its content is named by a hash: that of git ("blob SIZE\0" and the
// bytes, SHA-1) for small files, the SHA-256 of the bytes for those in large file storage. The
// name is also its ETag, and that of its blob in the cache.
struct RepoFile {
    std::string path;
    uint64_t bytes = 0;
    std::string hash;    // hexadecimal, 40 or 64 digits
    bool large = false;  // SHA-256
};

// The commit in the answer to /api/models/OWNER/NAME/revision/REVISION. `source`: for messages.
Result<std::string> ParseCommit(std::string_view json, const std::string& source);
// Appends the files of one page. kCorrupt with the entry that is wrong.
Status ParseTreePage(std::string_view json, const std::string& source,
                     std::vector<RepoFile>& files);
// The URL of rel="next" in a Link header; empty where there is none.
std::string NextPage(std::string_view link_header);
// The files that an index of safetensors shards names, once each, in order; kCorrupt for others
// than plain names.
Result<std::vector<std::string>> ParseShardIndex(std::string_view json, const std::string& source);
// `text` cut and without what a terminal would obey: for words of a server in a message.
std::string Shown(std::string_view text, size_t most = 120);

}  // namespace weft::hub
