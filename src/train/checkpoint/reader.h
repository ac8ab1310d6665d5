// Reads checkpoints: any region of any array, from the files that hold it. So M ranks can read a
// state that N ranks wrote, with any sharding of weights and optimizer state.
//
// Open checks everything except the data: every file exists with its length and with the header
// that the manifest names, and the required arrays are complete. Reads check the data, a MiB at a
// time.
// Thread: immutable; Read may run on any thread at the same time.
// Errors: kNotFound, kCorrupt, kIo, kUnsupported; each names the file and the next step.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/read_ahead.h"

namespace weft::train {

class Checkpoint {
  public:
    // folder: the folder of one step.
    static Result<Checkpoint> Open(const std::string& folder);

    const std::string& folder() const { return folder_; }
    const Manifest& manifest() const { return manifest_; }
    // nullptr: there is no such array.
    const Array* Find(const std::string& kind, const std::string& tensor) const;

    // Fills `out` with the region of the array, which must have exactly this size and type in the
    // checkpoint (kCorrupt). One large region is faster than many small ones.
    Status Read(const Array& array, const TensorRegion& region, std::span<std::byte> out) const;
    // Checks all data of file `index` (of the manifest) against its checksums. Errors: kCorrupt,
    // kIo, naming the file.
    Status CheckFile(size_t index) const;
    // As above, for an array in F32.
    Status Read(const std::string& kind, const std::string& tensor, const TensorRegion& region,
                std::span<float> out) const;

  private:
    struct Held {
        size_t file;
        StoredPiece piece;
    };
    struct Entry {
        Array array;
        std::vector<Held> pieces;
    };
    using Key = std::pair<std::string, std::string>;  // kind, tensor
    class Run;

    Status OpenFile(const CheckpointFile& listed);
    void DropCopies();
    Status ReadByParts(const Entry& entry, const TensorRegion& region,
                       std::span<std::byte> out) const;
    Status ReadPart(const Entry& entry, const TensorRegion& region, std::span<std::byte> out) const;
    Status CheckComplete() const;

    std::string folder_;
    Manifest manifest_;
    std::vector<File> files_;
    std::vector<ReadAhead> ahead_;                  // for the same files
    std::vector<std::vector<StoredPiece>> stored_;  // by file
    std::map<Key, Entry> entries_;
};

// The job folder that `where` names: the folder itself, or the parent of its "checkpoints" folder.
// Empty if `where` is the folder of one step.
std::string JobFolderOf(const std::string& where);

}  // namespace weft::train
