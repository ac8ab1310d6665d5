// Reads checkpoints: any region of any array, from whichever files hold it. So a state that N ranks
// wrote is read by M ranks, and by any other cut of the weights and of the optimizer's state.
//
// Opening checks all but the data: every file is there and as long as it was, has the header that
// the manifest names, and the arrays that must be there are there completely. The data are checked
// as they are read, a MiB at a time.
// Thread: immutable; Read from any thread at the same time.
// Errors: kNotFound, kCorrupt, kIo, kUnsupported; each names the file, and what may be done.
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
    // folder: of one step.
    static Result<Checkpoint> Open(const std::string& folder);

    const std::string& folder() const { return folder_; }
    const Manifest& manifest() const { return manifest_; }
    // nullptr: there is none.
    const Array* Find(const std::string& kind, const std::string& tensor) const;

    // Fills `out` with the region of the array, which must be of exactly these sizes and type in
    // the checkpoint (kCorrupt). A large region at a time is quicker than many small ones.
    Status Read(const Array& array, const TensorRegion& region, std::span<std::byte> out) const;
    // Reads all that file `index` (of the manifest's) holds against its checksums. Errors:
    // kCorrupt, kIo, naming the file.
    Status CheckFile(size_t index) const;
    // Of an array in F32.
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
    std::vector<ReadAhead> ahead_;                  // of the same files
    std::vector<std::vector<StoredPiece>> stored_;  // by file
    std::map<Key, Entry> entries_;
};

// The job folder that `where` names: the folder itself, or the parent of its "checkpoints" folder.
// Empty where `where` is the folder of one step.
std::string JobFolderOf(const std::string& where);

}  // namespace weft::train
