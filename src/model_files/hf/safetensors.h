// Safetensors: the header of one file, and the tensors of a folder (one file or many shards).
//
// A file is a little-endian u64 (bytes of the header), the header (a JSON object: tensor name ->
// dtype, shape, data_offsets), and the data, which the tensors fill without holes or overlap.
// A folder holds `model.safetensors`, or shards listed in `model.safetensors.index.json`. If it has
// both, `model.safetensors` is read and the index is not, as in transformers.
//
// Input is hostile: the header's length is checked against the file and 100 MB before anything is
// allocated, and allocations stay proportional to the header. Errors name the file, the tensor and
// the field: kCorrupt if the file breaks the format, kUnsupported for a dtype that the format does
// not have, kNotFound for a missing shard.
//
// Source: the safetensors format description (github.com/huggingface/safetensors, "Format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "model_files/weight_file.h"

namespace weft::model_files::hf {

enum class SafeType : uint8_t {
    kBool,
    kU8,
    kI8,
    kF8E4M3,
    kF8E5M2,
    kF8E8M0,
    kU16,
    kI16,
    kF16,
    kBF16,
    kU32,
    kI32,
    kF32,
    kU64,
    kI64,
    kF64
};

// The type's spelling in the header: "BF16", "F8_E4M3".
std::string_view SafeTypeName(SafeType type);
uint64_t SafeTypeBytes(SafeType type);

struct SafeTensor {
    std::string name;
    SafeType type;
    std::vector<int64_t> shape;  // slowest first; empty: a scalar
    int shard = 0;               // index of the folder's file
    uint64_t offset;             // of the first byte, from the start of that file
    uint64_t bytes;
};

// The longest header that the format allows.
inline constexpr uint64_t kMostHeaderBytes = 100'000'000;

// Parses one file's header; returns tensors in the header's order. A pure function: `bytes` is the
// start of the file, with at least the whole header; `file_bytes` is the file's size; `where` names
// the file in errors.
Result<std::vector<SafeTensor>> ParseSafetensors(std::span<const std::byte> bytes,
                                                 uint64_t file_bytes, std::string_view where);

// The shards that an index names, sorted and without duplicates, and the shard of each tensor.
struct ShardIndex {
    std::vector<std::string> files;
    std::unordered_map<std::string, int> shard_of;  // tensor -> index in `files`
};

// Parses `model.safetensors.index.json` or `pytorch_model.bin.index.json`. File names must not
// contain a path, so that an index can't point outside its folder.
Result<ShardIndex> ParseIndex(std::string_view text, std::string_view where);

// Whether TensorFiles::Open finds weights in the folder.
bool HasWeights(const std::string& folder);

// All tensors of a folder. Thread: immutable; its files may be read from any thread.
class TensorFiles {
  public:
    // Reads model.safetensors, or the shards of its index; if the folder has neither,
    // pytorch_model.bin (torch_file.h), or the shards of its index. plan (may be null):
    // weight_file.h. Errors: kNotFound, with both names and the folder's kind.
    static Result<TensorFiles> Open(const std::string& folder, ReadPlan* plan = nullptr);

    const std::vector<SafeTensor>& tensors() const { return tensors_; }
    const SafeTensor* Find(std::string_view name) const;
    const WeightFile& file(const SafeTensor& tensor) const {
        return files_[static_cast<size_t>(tensor.shard)];
    }
    const std::vector<WeightFile>& files() const { return files_; }
    // Hashes of the files' headers, in the order of files().
    const std::vector<Sha256Digest>& header_digests() const { return digests_; }

  private:
    TensorFiles() = default;
    Status AddFile(const std::string& path, ReadPlan* plan);
    Status AddShards(const std::string& folder, const char* index_name, ReadPlan* plan);
    void Take(WeightFile file, std::vector<SafeTensor> tensors, std::span<const std::byte> header);
    Status NeedKeys();
    Status Index();
    std::vector<WeightFile> files_;
    std::vector<Sha256Digest> digests_;
    std::vector<SafeTensor> tensors_;
    std::unordered_map<std::string_view, size_t> index_;
};

}  // namespace weft::model_files::hf
