// A model as the rest of Weft sees it: metadata, a table of tensors, and reads of parts of them.
//
// A model comes from a GGUF file (model_files/gguf.h), from a Hugging Face folder
// (model_files/hf/folder.h) or is made up in memory (model_files/synthetic.h); OpenModel takes the
// words of the command line and returns any of them.
//
// Shapes. A tensor is a matrix of `rows` rows of `cols` elements; a row is contiguous and made of
// whole blocks of its dtype. `dims` keeps the file's order (dims[0] = cols comes first), `rows` is
// the product of the rest. A vector has rows = 1.
// Owner: the source owns everything that its views point to.
// Thread: ReadRows may be called from any thread at the same time; the rest is immutable.
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

class ReadPlan;

struct TensorInfo {
    std::string name;
    DType dtype;
    int64_t cols;
    int64_t rows;
    int dim_count;
    std::array<int64_t, 4> dims;  // unused ones are 1
    int part;                     // which file of a split model, from 0
    uint64_t offset;              // of the first byte, from the start of that file
    uint64_t bytes;               // rows * RowBytes(dtype, cols)
};

class ModelSource {
  public:
    virtual ~ModelSource() = default;

    // The path, or "synthetic:NAME:dtype": for messages.
    virtual const std::string& name() const = 0;
    virtual const Metadata& meta() const = 0;
    // The folder that the tokenizer's files are in; empty: the metadata has the tokenizer.
    virtual std::string folder() const { return {}; }
    virtual const std::vector<TensorInfo>& tensors() const = 0;
    // nullptr when there is none of that name.
    virtual const TensorInfo* FindTensor(std::string_view tensor) const = 0;

    // Reads columns [col_begin, col_begin + col_count) of rows [row_begin, row_begin + row_count)
    // into `out`, row after row without gaps: row_count * RowBytes(dtype, col_count) bytes.
    // Column bounds must lie on blocks. `bytes_read` (may be null) grows by out.size():
    // nothing else is read.
    // Errors: kIo, kCorrupt (file cut short meanwhile), kNotFound (not in the shard of the file
    // that was pulled: weight_file.h). Bounds out of range are a bug: CHECK.
    virtual Status ReadRows(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                            int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                            uint64_t* bytes_read) const = 0;

    // SHA-256 (hex) over metadata, tensor table, file sizes and samples of each tensor's bytes:
    // two hosts hold the same model when these agree. Cheap: some 12 KiB a tensor are read.
    virtual Result<std::string> Fingerprint() const = 0;

    // The tensor of that name, or kNotFound with the model's name.
    Result<const TensorInfo*> NeedTensor(std::string_view tensor) const;
    // A whole tensor (of any dtype) as floats: for small ones, norms and biases.
    Result<std::vector<float>> ReadFloats(const TensorInfo& tensor,
                                          uint64_t* bytes_read = nullptr) const;
    // Bytes of all tensors.
    uint64_t TotalBytes() const;
    // The same for each type, by its name.
    std::map<std::string_view, uint64_t> BytesByType() const;
    // The type that most of the bytes have; "" where there are no tensors.
    std::string_view MainType() const;
    // Elements of all tensors.
    int64_t Parameters() const;

  protected:
    // CHECKs the arguments of ReadRows.
    static void CheckSlice(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                           int64_t col_begin, int64_t col_count, size_t out_bytes);
};

// Collects what a fingerprint is made of: the digests of its pieces, in order.
class FingerprintMaker {
  public:
    void Add(std::span<const std::byte> bytes);
    void Add(uint64_t number);
    std::string Finish() const;

  private:
    std::vector<std::byte> digests_;
};

// `word`: a path of a GGUF file (any part of a split one) or of a Hugging Face folder,
// `[hf:]OWNER/NAME[@REVISION][:FILE or TYPE]` (what is in this machine's cache folder:
// hub/cache.h), a short name for one (hub/short_names.h), or `synthetic:NAME[:dtype]`. A path that
// is there wins. plan: notes what is read of partial files (weight_file.h), and outlives the
// source.
Result<std::unique_ptr<ModelSource>> OpenModel(const std::string& word, ReadPlan* plan = nullptr);

}  // namespace weft::model_files
