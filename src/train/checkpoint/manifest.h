// Formats of the two descriptions in a checkpoint's folder: manifest.json, without which the
// checkpoint is not valid, and the headers of the ranks' files. docs/train.md describes the folder.
//
// The manifest holds the SHA-256 of each file's header, and the header holds the CRC-32C of each
// MiB of each piece. So Weft detects a file that belongs to another checkpoint, a truncated file,
// and, when it reads the data, a wrong byte.
//
// Input is hostile: sizes are checked before memory is allocated. Errors: kCorrupt, naming the file
// and the field; kUnsupported: another version of the format.
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
// Suffix with which the folder of a damaged checkpoint is renamed: "step-00000120.bad", ".bad-2".
inline constexpr char kAsideSuffix[] = ".bad";
inline constexpr char kManifestName[] = "manifest.json";
// Tells Weft's manifests from other files of this name.
inline constexpr char kManifestFormat[] = "weft-checkpoint";
inline constexpr uint64_t kMostManifestBytes = 256 << 20;
// Each chunk of this size in a piece has its own checksum.
inline constexpr uint64_t kCheckedBytes = 1 << 20;

// The file of one rank.
struct CheckpointFile {
    std::string name;  // without a folder
    uint64_t bytes = 0;
    Sha256Digest header{};  // SHA-256 of the file's bytes before the data

    bool operator==(const CheckpointFile&) const = default;
};

struct Manifest {
    int64_t step = 0;      // number of completed updates
    int64_t sequence = 0;  // later checkpoints in a folder have larger numbers
    // engine::ModelIdentity::model, or the fingerprint if a rank had a part of the files only; "":
    // of an earlier build.
    std::string model;
    std::string fingerprint{};  // ModelSource::Fingerprint; "": of an earlier build
    // Any other state that the job restores.
    model_files::hf::Json state = model_files::hf::Json::object();
    std::vector<CheckpointFile> files;  // by rank
    std::vector<Array> arrays;          // arrays that must be complete
};

std::string ManifestText(const Manifest& manifest);
Result<Manifest> ParseManifest(std::string_view text, std::string_view where);

// A CheckpointFile as text, which each rank sends to the rank that writes the manifest.
std::string FileText(const CheckpointFile& file);
Result<CheckpointFile> ParseFile(std::string_view text, std::string_view where);

struct StoredPiece {
    Array array;
    TensorRegion region;
    uint64_t offset = 0;              // place of the first byte, from the start of the file
    std::vector<uint32_t> checksums;  // CRC-32C of each chunk of kCheckedBytes bytes

    uint64_t bytes() const {
        return static_cast<uint64_t>(region.elements()) *
               model_files::hf::SafeTypeBytes(array.type);
    }
};

inline uint64_t ChecksumCount(uint64_t bytes) {
    return (bytes + kCheckedBytes - 1) / kCheckedBytes;
}

// The start of a rank's file up to its data: a safetensors header (model_files/hf/safetensors.h)
// whose "__metadata__" gives the places of the pieces. The header's length does not depend on the
// checksums. Ignores StoredPiece::offset: the pieces follow each other in the file.
std::string RankHeader(int64_t step, std::span<const StoredPiece> pieces);

// Whether ParseRankHeader accepts the header of a file with these pieces, which depends on their
// number and sizes. Errors: kUnsupported.
Status CheckRankHeader(std::span<const StoredPiece> pieces);

struct RankFile {
    int64_t step = 0;
    std::vector<StoredPiece> pieces;
};
// bytes: the start of a file of `file_bytes` bytes, including at least the whole header.
Result<RankFile> ParseRankHeader(std::span<const std::byte> bytes, uint64_t file_bytes,
                                 std::string_view where);

}  // namespace weft::train
