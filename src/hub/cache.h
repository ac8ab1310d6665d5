// The cache folder that is shared with huggingface_hub, in its layout:
//
//     models--OWNER--NAME/blobs/HASH                    contents
//                        /refs/main                     the commit that `main` was last time
//                        /snapshots/COMMIT/config.json  -> ../../blobs/HASH
//                        /weft-shards/refs/...          the same two for what `pull --shard` has
//                                    /snapshots/...     fetched: links to partial files (part.h)
//     .locks/models--OWNER--NAME/HASH.lock              held (flock) while HASH is downloaded
//
// What either of the two has fetched the other finds. Unfinished files (part.h) are
// blobs/HASH.weft.incomplete, with a note beside.
// https://huggingface.co/docs/huggingface_hub/guides/manage-cache
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/listing.h"
#include "hub/spec.h"

namespace weft::hub {

// The folder of one repository.
std::string RepoFolder(const Config& config, const RepoSpec& spec);
std::string BlobPath(const std::string& repo_folder, const RepoFile& file);
std::string PartPath(const std::string& repo_folder, const RepoFile& file);
// Of a repository's folder or its ShardFolder.
std::string SnapshotPath(const std::string& folder, const std::string& commit);
std::string ShardFolder(const std::string& repo_folder);

// With all folders above it.
Status MakeFolder(const std::string& path);
// Whether the whole content is there.
bool HasBlob(const std::string& repo_folder, const RepoFile& file);
// Whether the content itself is in the snapshot, as where there are no symbolic links.
bool HasCopy(const std::string& folder, const std::string& commit, const RepoFile& file);
// Makes snapshots/COMMIT/PATH of `folder` (a repository's, or its ShardFolder) lead to `content`,
// in one step. Where the file system has no symbolic links, that path becomes the content itself,
// as huggingface_hub has it there: it is moved where it was fetched just now, else copied.
// kUnsupported: content that is a partial file can't be there without a link.
Status LinkBlob(const std::string& folder, const std::string& commit, const RepoFile& file,
                const std::string& content, bool is_new);
// refs/REVISION says `commit`, in one step. Nothing to do for a revision that is a commit.
Status WriteRef(const std::string& folder, const RepoSpec& spec, const std::string& commit);
// Marks the cache folder as one for backup programs.
void TagCache(const Config& config);

// That the file system of `folder` has `needed` bytes left: kIo with both figures otherwise.
Status CheckSpace(const std::string& folder, uint64_t needed);

// The lock of one content, among all programs that know it. Let go with the object.
class BlobLock {
  public:
    // Waits while another program holds it and its partial file grows; kTimeout once nothing
    // happened there for config.timeout_ms. on_wait: called once, when there is something to wait
    // for.
    static Result<BlobLock> Take(const Config& config, const RepoSpec& spec, const RepoFile& file,
                                 const std::function<void()>& on_wait);
    BlobLock(BlobLock&& other) noexcept;
    BlobLock& operator=(BlobLock&&) = delete;
    ~BlobLock();

  private:
    explicit BlobLock(int fd) : fd_(fd) {}
    int fd_;
};

// The files of a snapshot that are whole (links that lead nowhere are left out), with paths, sizes
// and nothing else, in alphabetical order. unread: gets a line for each folder or file that is
// there and can't be looked at.
std::vector<RepoFile> FilesIn(const std::string& snapshot,
                              std::vector<std::string>* unread = nullptr);
// Adds a line to `unread` where the folder is there and can't be listed.
void NoteUnread(const std::string& folder, std::vector<std::string>* unread);

// The path of a GGUF file or a folder in the cache, for a MODEL word that starts with "hf:".
// Asks no network. Where it is not there whole, but shards of it are, their folder: its files are
// partial ones. kNotFound says how to pull it, and what is there in its place; kUsage where several
// files fit; kIo: it can't be looked for.
Result<std::string> FindCached(const Config& config, const RepoSpec& spec);
// The same for a word and the user's settings.
Result<std::string> FindCached(const std::string& word);

}  // namespace weft::hub
