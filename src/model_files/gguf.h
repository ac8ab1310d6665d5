// GGUF model files, versions 2 and 3, little-endian, in one file or split into several
// (`name-00001-of-00003.gguf`; opening any part opens all parts).
//
// The header (metadata and tensor table) is a copy in memory, into which views of its strings
// point: a file that is overwritten or cut later does not change it. Tensor data is read with
// positional reads, so the resident set holds no copy of the file.
//
// Input is hostile: counts, lengths, dims and offsets are checked against the remaining bytes
// before allocating, and allocations stay proportional to bytes that were really there. Errors name
// the file, the tensor or key, and the field: kCorrupt if the file breaks the format; kUnsupported
// for versions and tensor types that Weft does not read; kNotFound for a missing part, and for
// bytes that a partial file (weight_file.h) lacks. The parser does not check tensor data, so scales
// in it may be NaN or infinite.
//
// Source: the GGUF specification (ggml/docs/gguf.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "model_files/metadata.h"
#include "model_files/model_file.h"
#include "model_files/weight_file.h"

namespace weft::model_files {

struct GgufHeader {
    uint32_t version;
    uint64_t alignment;
    uint64_t data_offset;  // where tensor data begins, from the start of the file
    std::vector<MetaEntry> entries;
    std::vector<TensorInfo> tensors;  // part = 0, in the file's order
};

// Parses the header of one file. A pure function: `bytes` is the start of the file, with at least
// the whole header; `file_bytes` is the file's size; `where` names the file in errors. The result's
// views point into `bytes`.
Result<GgufHeader> ParseGguf(std::span<const std::byte> bytes, uint64_t file_bytes,
                             std::string_view where);

class Gguf final : public ModelSource {
  public:
    static Result<Gguf> Open(const std::string& path, ReadPlan* plan = nullptr);

    const std::string& name() const override { return path_; }
    const Metadata& meta() const override { return meta_; }
    std::vector<const WeightFile*> Files() const override;
    const std::vector<TensorInfo>& tensors() const override { return tensors_; }
    const TensorInfo* FindTensor(std::string_view tensor) const override;
    Status ReadRows(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                    int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                    uint64_t* bytes_read) const override;
    Result<std::string> Fingerprint() const override;

    uint32_t version() const { return version_; }
    uint64_t alignment() const { return alignment_; }

  private:
    struct Part {
        std::vector<std::byte> header;
        WeightFile file;
    };
    // Rows and columns of a tensor to read.
    struct Slice {
        int64_t row, rows, col, cols;
    };
    Gguf(std::string path, uint32_t version, uint64_t alignment, std::vector<Part> parts,
         std::vector<MetaEntry> entries, std::vector<TensorInfo> tensors);

    // For each NVFP4 tensor NAME.weight, removes NAME.scale and NAME.input_scale (for quantized
    // activations) from the tensor table; reads of NAME.weight apply NAME.scale.
    Status FoldScales();
    Result<std::vector<float>> ScalesOf(const TensorInfo& tensor) const;
    Status ReadNvRows(const TensorInfo& tensor, const Slice& slice, std::span<std::byte> out,
                      uint64_t* bytes_read) const;
    Status ReadFile(const TensorInfo& tensor, const Slice& slice, std::span<std::byte> out) const;

    std::string path_;
    uint32_t version_;
    uint64_t alignment_;
    std::vector<Part> parts_;
    Metadata meta_;  // of the first part
    std::vector<TensorInfo> tensors_;
    std::unordered_map<std::string_view, size_t> index_;  // keys point into tensors_
    std::unordered_map<std::string, TensorInfo> scales_;  // tensor-wide scales of NVFP4 tensors, by
                                                          // tensor name
};

}  // namespace weft::model_files
