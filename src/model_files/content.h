// The content of model files: a sum of each 64 MiB (base/byte_sum.h), by which ranks, kept
// pages and records recognize a model, and which finds copies that differ between hosts.
//
// Reads that load weights add to the sums (weight_file.h); ReadContent reads the missing bytes. The
// sums of whole files are kept in CacheFolder()/content, under the file's device (or the id of its
// file system), inode, size and times of its last change, so a file is summed once. The sums of a
// file of this host alone are stored under its name: cloned hosts may share the folder. The folder
// keeps the last 1,000 files. A cache file is hostile input; an invalid one counts as missing. A
// disk that damages bytes without a write leaves these times unchanged, so only
// ReadContentOptions::anew finds such damage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model_files/model_file.h"
#include "model_files/weight_file.h"

namespace weft::model_files {

inline constexpr const char* kPartly = "~";

using WeightFiles = std::span<const WeightFile* const>;

struct FileContent {
    std::string path;
    uint64_t bytes = 0;
    uint64_t chunk_bytes = kSummedBytes;  // of each sum; the last chunk may be shorter
    // The sum of each chunk, in hex. A chunk that is only partly there (a partial file) has the sum
    // of that part, after kPartly.
    std::vector<std::string> sums;
    // SHA-256 (hex) of the size and the sums, which is not the SHA-256 of the file.
    std::string Digest() const;
};

struct Content {
    std::vector<FileContent> files;
    uint64_t read_bytes = 0;  // read by this call; other sums come from the cache
    uint64_t bytes() const;
    // SHA-256 (hex) over the digests of all files; "": no files.
    std::string Digest() const;
};

struct ReadContentOptions {
    size_t threads = 1;
    bool anew = false;  // read all bytes, even if the cache has their sums
    // Called from any thread while files are read: the bytes read so far, and the bytes of all
    // files that are not in the cache. An error ends the work. May be null.
    std::function<Status(uint64_t done, uint64_t all)> progress{};
};

// Completes the sums of `files`: reads the missing bytes, unless the cache has the sums. Adds the
// sums of each file to the cache as soon as the file is read. Errors: as WeightFile.
Result<Content> ReadContent(WeightFiles files, const ReadContentOptions& options);
// The content if the cache has it, or all was read; nullopt: ReadContent would read.
Result<std::optional<Content>> KnownContent(WeightFiles files);
// From now on, reads of the files add to their sums, unless the cache has the sums.
void HashReads(WeightFiles files);

// A text that differs unless `files` are the same unchanged files, seen from this machine or, on a
// file system of several machines (such as NFS), from another one. machine: names this machine.
std::string CopyId(WeightFiles files, const std::string& machine);

// SHA-256 (hex) of a fingerprint (ModelSource::Fingerprint) and of the digest of the files to which
// it belongs: equal for the same bytes only. Without files, the fingerprint.
std::string IdentityOf(const std::string& fingerprint, const std::string& digest);
// The identities of a model and of its adapters ("": none), whose files are read on all of the
// process's cores if necessary. Of a partial file, only the header counts. Errors: as ReadContent.
Result<std::string> ReadIdentity(const ModelSource& source);
Result<std::string> ReadAdaptersIdentity(const ModelSource& source);

// FileContent as JSON, at most `most` sums of 16 digits: a sum covers several chunks if the file
// has more than `most` chunks. FromJson: errors: kCorrupt.
std::string FileContentToJson(const FileContent& file, size_t most);
Result<FileContent> FileContentFromJson(const std::string& text);

// A host's copy of a file.
struct FileCopy {
    std::string host;
    FileContent file;
};
// Text with the byte range that differs, the copies that agree, the copies that differ, and the
// next step; "": all copies are equal in the chunks that two copies both have.
std::string CompareCopies(std::span<const FileCopy> copies);

}  // namespace weft::model_files
