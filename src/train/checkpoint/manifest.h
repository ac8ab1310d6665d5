// The two descriptions in a checkpoint's folder: manifest.json, which makes it valid, and the
// header of each rank's file. docs/train.md says what the folder looks like.
//
// The manifest holds the SHA-256 of each file's header, and a header the CRC-32C of each MiB of
// each of its pieces: so a file of another checkpoint, a file cut short and a wrong byte are all
// found, the last when it is read.
//
// Input is hostile: sizes are bounded before anything is allocated. Errors: kCorrupt, naming the
// file and the field; kUnsupported: another version of the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "model_files/hf/json.h"
#include "train/checkpoint/region.h"

namespace weft::train {

// DIR/checkpoints/step-00000120/manifest.json
inline constexpr char kCheckpointsName[] = "checkpoints";
inline constexpr char kStepPrefix[] = "step-";
// Of a step's folder that was found damaged and renamed: "step-00000120.bad", ".bad-2", ...
inline constexpr char kAsideSuffix[] = ".bad";
inline constexpr char kManifestName[] = "manifest.json";
inline constexpr uint64_t kMostManifestBytes = 256 << 20;
// Each so many bytes of a piece have a checksum of their own.
inline constexpr uint64_t kCheckedBytes = 1 << 20;

// The file of one rank.
struct CheckpointFile {
    std::string name;  // without a folder
    uint64_t bytes = 0;
    Sha256Digest header{};  // SHA-256 of the file up to its data

    bool operator==(const CheckpointFile&) const = default;
};

struct Manifest {
    int64_t step = 0;      // updates that were done
    int64_t sequence = 0;  // of two checkpoints in a folder the later one has the larger number
    std::string model;     // ModelSource::Fingerprint
    // Whatever else the job wants back.
    model_files::hf::Json state = model_files::hf::Json::object();
    std::vector<CheckpointFile> files;  // by rank
    std::vector<Array> arrays;          // which must be there completely
};

std::string ManifestText(const Manifest& manifest);
Result<Manifest> ParseManifest(std::string_view text, std::string_view where);

// A file's entry, as it travels to the rank that writes the manifest.
std::string FileText(const CheckpointFile& file);
Result<CheckpointFile> ParseFile(std::string_view text, std::string_view where);

struct StoredPiece {
    Array array;
    TensorRegion region;
    uint64_t offset = 0;              // of its first byte, from the start of the file
    std::vector<uint32_t> checksums;  // CRC-32C of each kCheckedBytes

    uint64_t bytes() const {
        return static_cast<uint64_t>(region.elements()) *
               model_files::hf::SafeTypeBytes(array.type);
    }
};

inline uint64_t ChecksumCount(uint64_t bytes) {
    return (bytes + kCheckedBytes - 1) / kCheckedBytes;
}

// The start of a rank's file up to its data: a safetensors header (model_files/hf/safetensors.h),
// whose "__metadata__" says where the pieces belong. As long whatever the checksums are. Of the
// pieces, `offset` is not looked at: they lie one after the other.
std::string RankHeader(int64_t step, std::span<const StoredPiece> pieces);

struct RankFile {
    int64_t step = 0;
    std::vector<StoredPiece> pieces;
};
// `bytes`: the start of a file of `file_bytes`, its whole header at least.
Result<RankFile> ParseRankHeader(std::span<const std::byte> bytes, uint64_t file_bytes,
                                 std::string_view where);

}  // namespace weft::train
