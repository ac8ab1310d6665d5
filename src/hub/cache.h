// The cache folder, shared with huggingface_hub, in its layout:
//
//     models--OWNER--NAME/blobs/HASH                    contents
//                        /refs/main                     the last known commit of `main`
//                        /snapshots/COMMIT/config.json  -> ../../blobs/HASH
//                        /weft-shards/refs/...          the same two for downloads of
//                                    /snapshots/...     `pull --shard`: links to partial files
//                                                       (part.h)
//     datasets--OWNER--NAME/...                      the same for data sets
//                          /weft-data/COMMIT/CONFIG@SPLIT   the paths of the split's files, a line
//                                                           each
//     .locks/models--OWNER--NAME/HASH.lock              held (flock) while HASH is downloaded
//
// Each program finds what the other has downloaded. Unfinished files (part.h) are
// blobs/HASH.weft.incomplete, each with a note file.
// https://huggingface.co/docs/huggingface_hub/guides/manage-cache
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "hub/listing.h"
#include "hub/spec.h"

namespace weft::hub {

// The folder of one repository.
std::string RepoFolder(const Config& config, const RepoSpec& spec);
std::string BlobPath(const std::string& repo_folder, const RepoFile& file);
std::string PartPath(const std::string& repo_folder, const RepoFile& file);
// folder: a repository's folder or its ShardFolder.
std::string SnapshotPath(const std::string& folder, const std::string& commit);
std::string ShardFolder(const std::string& repo_folder);

// Creates the folder and its parents.
Status MakeFolder(const std::string& path);
// Whether the complete content is there.
bool HasBlob(const std::string& repo_folder, const RepoFile& file);
// Whether the snapshot holds the content itself instead of a link, as on file systems without
// symbolic links.
bool HasCopy(const std::string& folder, const std::string& commit, const RepoFile& file);
// Makes snapshots/COMMIT/PATH of `folder` (the folder of a repository, or its ShardFolder) a link
// to `content`, atomically. On a file system without symbolic links, that path becomes the content
// itself, as in huggingface_hub: moved if `is_new` (just downloaded), else copied. Errors:
// kUnsupported if links are not available and the content is a partial file.
Status LinkBlob(const std::string& folder, const std::string& commit, const RepoFile& file,
                const std::string& content, bool is_new);
// Renames a complete partial file to its name in blobs/, and removes its note. Links of
// `pull --shard` to the partial file stay valid at all times. The file's lock must be held.
Status CompletePart(const std::string& repo_folder, const RepoFile& file);
// Writes `commit` to refs/REVISION, atomically. Does nothing if the revision is a commit.
Status WriteRef(const std::string& folder, const RepoSpec& spec, const std::string& commit);
// Marks the cache folder as a cache, which backup programs skip (CACHEDIR.TAG).
void TagCache(const Config& config);

// Errors: kIo, with both figures, if the file system of `folder` has less than `needed` bytes free.
Status CheckSpace(const std::string& folder, uint64_t needed);

// The lock of one content, among all programs that use this cache. The destructor releases it.
class BlobLock {
  public:
    // Waits while another program holds the lock and works: the partial file grows, or its
    // modification time changes (download.h). kTimeout if neither happens for config.timeout_ms.
    // on_wait: called once, before waiting.
    static Result<BlobLock> Take(const Config& config, const RepoSpec& spec, const RepoFile& file,
                                 const std::function<void()>& on_wait);

  private:
    explicit BlobLock(int fd) : fd_(fd) {}
    Fd fd_;
};

// The complete files of a snapshot (dangling links are left out), with only paths and sizes, in
// alphabetical order. unread: receives a line for each folder or file that can't be read.
std::vector<RepoFile> FilesIn(const std::string& snapshot,
                              std::vector<std::string>* unread = nullptr);
// Adds a line to `unread` if the folder exists and can't be listed.
void NoteUnread(const std::string& folder, std::vector<std::string>* unread);

// Finds the GGUF file or folder in the cache that a MODEL argument starting with "hf:" names. Uses
// no network. If the cache has only shards of the model, returns their folder, whose files are
// partial. If the revision's last commit lacks the model, because other files of the repository
// were downloaded later, uses the newest other snapshot that has it and that no ref names. older:
// receives a sentence about this. Errors: kNotFound states how to pull it, and names similar models
// in the cache; kUsage if several files match; kIo if the cache can't be read.
Result<std::string> FindCached(const Config& config, const RepoSpec& spec,
                               std::string* older = nullptr);
// As above, with the user's settings; logs the sentence.
Result<std::string> FindCached(const std::string& word);

// The paths of a split's files, in the order of training. Chooses the snapshot, and fails, as
// FindCached.
Result<std::vector<std::string>> FindCachedData(const Config& config, const RepoSpec& spec);
// Notes which files of the snapshot the split has: FindCachedData uses no network.
Status WriteDataFiles(const Config& config, const RepoSpec& spec, const std::string& commit,
                      const std::vector<RepoFile>& files);

}  // namespace weft::hub
