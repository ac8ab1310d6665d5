// The content of model files: SHA-256 of each chunk of 64 MiB, to find copies of a model that
// differ between hosts.
//
// Hashes of whole files are kept in CacheFolder()/content, under the file's device, inode, size and
// times of its last change, so a file is read once. A cache file is hostile input; an invalid one
// counts as missing. A disk that damages bytes without a write leaves these times as they are, so
// only ReadContentOptions::anew finds such damage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace weft::model_files {

inline constexpr uint64_t kHashedBytes = uint64_t{64} << 20;

struct FileContent {
    std::string path;
    uint64_t bytes = 0;
    uint64_t chunk_bytes = kHashedBytes;  // of each hash; the last chunk may be shorter
    std::vector<std::string> hashes;      // SHA-256 of each chunk, in hex
    // SHA-256 (hex) of the size and the hashes, which is not the SHA-256 of the file.
    std::string Digest() const;
};

struct Content {
    std::vector<FileContent> files;
    uint64_t read_bytes = 0;  // bytes that were read now; the rest comes from the cache
    uint64_t bytes() const;
    // SHA-256 (hex) over the digests of all files.
    std::string Digest() const;
};

struct ReadContentOptions {
    size_t threads = 1;
    bool anew = false;  // read all bytes, whatever the cache has
    // Called from any thread while files are read: the bytes done, and those of all files that are
    // not in the cache. An error ends the work. May be null.
    std::function<Status(uint64_t done, uint64_t all)> progress{};
};

// paths: those of ModelSource::Files. Errors: those of File; kUnsupported for a partial file of
// `weft pull --shard`; kIo if a file changes meanwhile.
Result<Content> ReadContent(std::span<const std::string> paths, const ReadContentOptions& options);

// A text that differs unless `paths` are the same unchanged files on this machine. Errors: kIo.
Result<std::string> CopyId(std::span<const std::string> paths);

// FileContent as JSON, at most `most` hashes of 16 digits: a hash covers several chunks if the file
// has more than `most` chunks. FromJson: errors: kCorrupt.
std::string FileContentToJson(const FileContent& file, size_t most);
Result<FileContent> FileContentFromJson(const std::string& text);

// A host's copy of a file.
struct FileCopy {
    std::string host;
    FileContent file;
};
// The byte range that differs, the copies that agree and those that do not, and the next step; "":
// all copies are equal.
std::string CompareCopies(std::span<const FileCopy> copies);

}  // namespace weft::model_files
