// Synthetic models: the shape of a real model with random weights, made up as they are read, so
// that speed, memory and layouts can be tried without a download.
//
//     synthetic:NAME[:dtype][:layers=N]
//         NAME: smollm2-135m, llama-3.2-1b, llama-3.1-8b, llama-3.1-70b, llama-3.1-405b,
//         qwen3-0.6b, qwen3-8b, qwen3-30b-a3b, qwen3-235b-a22b, mixtral-8x7b,
//         deepseek-r1, kimi-k2; dtype: any of tensor/dtype.h but I32; q4_0 if unsaid;
//         layers: only the first N, so that one layer of a large model can be tried
//
// Hyper-parameters and tensor names are those of the real GGUF files (scaled RoPE as the tensor
// rope_freqs.weight, tied embeddings where the real model ties them). Matrices have mean 0 and
// variance 1/cols; norms are 1 and F32. Block types are made as random blocks with a fixed scale.
// As in quantized files of real models:
//   - with a 4-bit dtype the output matrix (the embedding where it is tied) is Q6_K;
//   - where cols is not a multiple of 256, Q4_K and Q6_K become Q8_0.
//
// Every byte depends on (seed, tensor name, row, column) alone: any shard, read in any order,
// sees the same model. The tokenizer is byte-level BPE without merges: 256 byte tokens, the chat
// special tokens of the family, and made-up words (" bebaba") up to the real vocabulary's size: no
// text is cut into those, but the model says them.
// Errors of Make: kUsage for an unknown name or dtype, or more layers than there are; the message
// lists the known ones.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model_files/gguf.h"
#include "model_files/model_file.h"

namespace weft::model_files {

class Synthetic final : public ModelSource {
  public:
    // True when `spec` begins with "synthetic:".
    static bool IsSpec(std::string_view spec);
    // The known shapes: "smollm2-135m, llama-3.2-1b, ...".
    static std::string Names();
    static Result<Synthetic> Make(const std::string& spec, uint64_t seed = 1);

    const std::string& name() const override { return spec_; }
    const Metadata& meta() const override { return meta_; }
    const std::vector<TensorInfo>& tensors() const override { return tensors_; }
    const TensorInfo* FindTensor(std::string_view tensor) const override;
    // `bytes_read` counts what was made up, as if it had been read.
    Status ReadRows(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                    int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                    uint64_t* bytes_read) const override;
    Result<std::string> Fingerprint() const override;

  private:
    Synthetic(std::string spec, uint64_t seed, std::vector<std::byte> header_bytes,
              GgufHeader header, std::vector<float> rope_factors);

    std::string spec_;
    uint64_t seed_;
    std::vector<std::byte> header_bytes_;  // meta_ points into it
    Metadata meta_;
    std::vector<TensorInfo> tensors_;
    std::unordered_map<std::string_view, size_t> index_;
    std::vector<float> rope_factors_;
};

}  // namespace weft::model_files
