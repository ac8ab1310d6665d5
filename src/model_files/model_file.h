// A model, as the rest of Weft sees it: metadata, a table of tensors, and reads of parts of
// tensors.
//
// A model is a GGUF file (model_files/gguf.h), a Hugging Face folder (model_files/hf/folder.h) or
// synthetic (model_files/synthetic.h); OpenModel opens any of them from a command-line argument.
//
// Shapes. A tensor is a matrix of `rows` rows of `cols` elements; a row is contiguous and made of
// whole blocks of its dtype. `dims` keeps the file's order (dims[0] = cols comes first); `rows` is
// the product of the other dims. A vector has rows = 1.
// Ownership: the source owns everything that its views point to.
// Thread: ReadRows may be called from several threads at once; the rest is immutable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "model_files/metadata.h"
#include "tensor/dtype.h"

namespace weft::model_files {

class WeightFile;

class ReadPlan;

struct TensorInfo {
    std::string name;
    DType dtype;
    int64_t cols;
    int64_t rows;
    int dim_count;
    std::array<int64_t, 4> dims;  // unused dims are 1
    int part;                     // index of the file of a split model
    uint64_t offset;              // of the first byte, from the start of that file
    uint64_t bytes;               // rows * RowBytes(dtype, cols)
};

class ModelSource {
  public:
    virtual ~ModelSource() = default;

    // The path, or "synthetic:NAME:dtype", for messages.
    virtual const std::string& name() const = 0;
    virtual const Metadata& meta() const = 0;
    // The files that ReadRows reads for the model; empty: tensors come from no file of this host.
    virtual std::vector<const WeightFile*> Files() const { return {}; }
    // The files of LoRA adapters beside the model (lora/adapted_source.h).
    virtual std::vector<const WeightFile*> AdapterFiles() const { return {}; }
    // The folder with the tokenizer's files; empty: the tokenizer is in the metadata.
    virtual std::string folder() const { return {}; }
    virtual const std::vector<TensorInfo>& tensors() const = 0;
    // nullptr if there is no tensor of that name.
    virtual const TensorInfo* FindTensor(std::string_view tensor) const = 0;
    // As FindTensor, for a tensor that the model needs; dims: the dims that it must have, columns
    // first. A source without weights (model/model_shape.h) makes the tensor.
    virtual const TensorInfo* FindNeeded(std::string_view tensor,
                                         std::span<const int64_t> /*dims*/) const {
        return FindTensor(tensor);
    }

    // Reads columns [col_begin, col_begin + col_count) of rows [row_begin, row_begin + row_count)
    // into `out`, row after row without gaps: row_count * RowBytes(dtype, col_count) bytes. Column
    // bounds must lie on block bounds. Reads nothing else. Adds out.size() to *bytes_read, if it is
    // not null.
    // Errors: kIo, kCorrupt (the file was truncated after opening), kNotFound (the bytes are not in
    // the shard that was pulled: weight_file.h). Bounds out of range are a bug: CHECK.
    virtual Status ReadRows(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                            int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                            uint64_t* bytes_read) const = 0;

    // SHA-256 (hex) over metadata, tensor table and file sizes: two hosts make the same plan if
    // their fingerprints are equal. Cheap: reads no bytes of tensors, by which content.h
    // distinguishes models.
    virtual Result<std::string> Fingerprint() const = 0;

    // Errors: kNotFound, with the model's name.
    Result<const TensorInfo*> NeedTensor(std::string_view tensor) const;
    // A whole tensor of any dtype as floats; for small tensors such as norms and biases.
    Result<std::vector<float>> ReadFloats(const TensorInfo& tensor,
                                          uint64_t* bytes_read = nullptr) const;
    // Bytes of all tensors.
    uint64_t TotalBytes() const;
    // Bytes of all tensors by the name of their dtype.
    std::map<std::string_view, uint64_t> BytesByType() const;
    // The dtype with the most bytes; "": there are no tensors.
    std::string_view MainType() const;
    // Elements of all tensors.
    int64_t Parameters() const;

  protected:
    // CHECKs the arguments of ReadRows.
    static void CheckSlice(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                           int64_t col_begin, int64_t col_count, size_t out_bytes);
};

// Builds a fingerprint from the digests of its parts, in order.
class FingerprintMaker {
  public:
    void Add(std::span<const std::byte> bytes);
    void Add(uint64_t number);
    std::string Finish() const;

  private:
    std::vector<std::byte> digests_;
};

// `word`: the path of a GGUF file (any part of a split file) or of a Hugging Face folder;
// `[hf:]OWNER/NAME[@REVISION][:FILE or TYPE]` (a model in this machine's cache: hub/cache.h); a
// short name for such a model (hub/short_names.h); or `synthetic:NAME[:dtype]`. An existing path
// takes precedence. plan: records reads of partial files (weight_file.h); must outlive the source.
Result<std::unique_ptr<ModelSource>> OpenModel(const std::string& word, ReadPlan* plan = nullptr);

// The path of the file or folder that OpenModel opens for `word`; "" for a synthetic model. Errors:
// as hub::FindCached.
Result<std::string> PathOfModel(const std::string& word);

}  // namespace weft::model_files
