// Reads any region of any array of a checkpoint, from the files that hold it. So M ranks can read a
// state that N ranks wrote, with any sharding of weights and optimizer state.
//
// Open checks everything except the data: every file exists and has the length and the header hash
// in the manifest, and Manifest::arrays are complete. Reads check the data, a MiB at a time.
// Thread: a Checkpoint is immutable; several threads may call Read at the same time.
// Errors: kNotFound, kCorrupt, kIo, kUnsupported; each message names the file and what to do.
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

namespace weft::train {

class Checkpoint {
  public:
    // folder: the folder of one step.
    static Result<Checkpoint> Open(const std::string& folder);
    // The same with a manifest that is not in the folder yet.
    static Result<Checkpoint> Open(const std::string& folder, Manifest manifest);

    const std::string& folder() const { return folder_; }
    const Manifest& manifest() const { return manifest_; }
    // nullptr: there is no such array.
    const Array* Find(const std::string& kind, const std::string& tensor) const;

    // Fills `out` with the region of the array. Errors: kCorrupt if the array has another size or
    // type in the checkpoint. One large region is faster than many small ones.
    Status Read(const Array& array, const TensorRegion& region, std::span<std::byte> out) const;
    // Checks all data of file Manifest::files[index] against the checksums. Errors: kCorrupt, kIo;
    // the message names the file.
    Status CheckFile(size_t index) const;
    // Closes the files, so that their disk space is freed when they are removed. Nothing can be
    // read afterwards.
    void Close();
    // Reads a region of an array of type F32.
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
    std::vector<std::vector<StoredPiece>> stored_;  // by file
    std::map<Key, Entry> entries_;
};

// The job folder that `where` names: the folder itself, or the parent of its "checkpoints" folder.
// Empty if `where` is the folder of one step.
std::string JobFolderOf(const std::string& where);

}  // namespace weft::train
