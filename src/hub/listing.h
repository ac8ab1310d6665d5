// Parses responses of the Hub's API: the commit of a revision, and the files of a commit.
//
// Responses are hostile text: their size is bounded before parsing (kMostPageBytes), and every path
// (IsSafePath), size and content name is checked; one bad entry rejects the whole response.
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

// A file of a repository. A hash identifies the file's content: git's (SHA-1 of "blob SIZE\0" and
// the bytes) for small files, SHA-256 of the bytes for files in large file storage. The hash is
// also its ETag and the name of its blob in the cache.
struct RepoFile {
    std::string path;
    uint64_t bytes = 0;
    std::string hash;    // hexadecimal, 40 or 64 digits
    bool large = false;  // the hash is SHA-256
};

// The commit in the response to /api/models/OWNER/NAME/revision/REVISION. `source`: for messages.
Result<std::string> ParseCommit(std::string_view json, const std::string& source);
// Appends the files of one page. Errors: kCorrupt, with the invalid entry.
Status ParseTreePage(std::string_view json, const std::string& source,
                     std::vector<RepoFile>& files);
// The URL of rel="next" in a Link header; empty: none.
std::string NextPage(std::string_view link_header);
// The files listed in an index of safetensors shards, in order and without duplicates. Errors:
// kCorrupt for a name with a path.
Result<std::vector<std::string>> ParseShardIndex(std::string_view json, const std::string& source);
// `text`, truncated and without terminal control characters, to quote a server in a message.
std::string Shown(std::string_view text, size_t most = 120);

}  // namespace weft::hub
