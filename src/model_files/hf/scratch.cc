#include "model_files/hf/scratch.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/dangling_link.h"
#include "model_files/hf/folder_config.h"
#include "model_files/hf/safetensors.h"
#include "model_files/synthetic_weights.h"
#include "tokenizer/open.h"

namespace weft::model_files::hf {
namespace {

constexpr int64_t kMostSize = int64_t{1} << 20;

struct Beginner {
    std::string_view model_type;
    bool qkv_bias = false;  // always has it; else attention_bias decides, also for the output
    bool normed_heads = false;
};
constexpr Beginner kKnown[] = {{"llama"}, {"qwen2", true}, {"qwen3", false, true}};

class ScratchModel final : public ModelSource {
  public:
    ScratchModel(std::string path, uint64_t seed, FolderConfig read)
        : path_(std::move(path)),
          seed_(seed),
          config_text_(std::move(read.text)),
          header_bytes_(std::move(read.header)),
          meta_(path_, std::move(read.entries)) {}

    // Lists the tensors, from the sizes in config.json.
    Status Plan(const Config& config, const Beginner& family);

    const std::string& name() const override { return path_; }
    const Metadata& meta() const override { return meta_; }
    std::string folder() const override { return path_; }
    const std::vector<TensorInfo>& tensors() const override { return tensors_; }
    const TensorInfo* FindTensor(std::string_view tensor) const override {
        const auto found = std::ranges::find(tensors_, tensor, &TensorInfo::name);
        return found == tensors_.end() ? nullptr : &*found;
    }
    Status ReadRows(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                    int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                    uint64_t* bytes_read) const override;
    Result<std::string> Fingerprint() const override {
        constexpr uint64_t kGeneratorVersion = 1;
        FingerprintMaker maker;
        maker.Add(std::as_bytes(std::span(config_text_)));
        maker.Add(seed_);
        maker.Add(kGeneratorVersion);
        return maker.Finish();
    }

  private:
    void Add(const std::string& name, int64_t rows, int64_t cols, int dims) {
        const auto bytes = static_cast<uint64_t>(rows * cols) * sizeof(float);
        tensors_.push_back(
            {name, DType::kF32, cols, rows, dims, {cols, rows, 1, 1}, 0, total_, bytes});
        total_ += bytes;
    }
    void Matrix(const std::string& module, int64_t rows, int64_t cols, bool bias = false) {
        Add(module + ".weight", rows, cols, 2);
        if (bias) Vector(module + ".bias", rows);
    }
    void Vector(const std::string& name, int64_t size) { Add(name, 1, size, 1); }

    std::string path_;
    uint64_t seed_;
    std::string config_text_;
    std::vector<std::byte> header_bytes_;  // meta_ points into it
    Metadata meta_;
    std::vector<TensorInfo> tensors_;
    uint64_t total_ = 0;  // bytes of tensors_
    float deviation_ = 0;
    std::vector<RopeVector> ropes_;
};

Status ScratchModel::Plan(const Config& config, const Beginner& family) {
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, kMostSize));
    WEFT_ASSIGN(const int64_t ffn, config.NeedInt({"intermediate_size"}, 1, kMostSize));
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, 4096));
    WEFT_ASSIGN(const int64_t heads, config.NeedInt({"num_attention_heads"}, 1, 4096));
    WEFT_ASSIGN(const int64_t kv_heads, config.IntOr({"num_key_value_heads"}, 1, 4096, heads));
    WEFT_ASSIGN(const int64_t vocab, config.NeedInt({"vocab_size"}, 1, 16 * kMostSize));
    WEFT_ASSIGN(const int64_t head_dim, HeadDim(config));
    WEFT_ASSIGN(const bool tied, config.BoolOr({"tie_word_embeddings"}, false));
    WEFT_ASSIGN(const bool attention_bias, config.BoolOr({"attention_bias"}, false));
    WEFT_ASSIGN(const bool mlp_bias, config.BoolOr({"mlp_bias"}, false));
    WEFT_ASSIGN(const double deviation, config.F64Or({"initializer_range"}, 0.02));
    if (!(deviation > 0 && deviation < 10)) {
        return config.Corrupt("initializer_range", "a number above 0 and below 10");
    }
    deviation_ = static_cast<float>(deviation);
    Add("token_embd.weight", vocab, hidden, 2);
    Vector("output_norm.weight", hidden);
    if (!tied) Matrix("output", vocab, hidden);
    WEFT_ASSIGN(ropes_, RopeVectors(config));
    for (const RopeVector& rope : ropes_) Vector(rope.tensor, std::ssize(rope.factors));
    const bool qkv_bias = family.qkv_bias || attention_bias;
    const bool output_bias = !family.qkv_bias && attention_bias;
    for (int64_t layer = 0; layer < layers; ++layer) {
        const std::string block = fmt::format("blk.{}.", layer);
        Vector(block + "attn_norm.weight", hidden);
        Vector(block + "ffn_norm.weight", hidden);
        Matrix(block + "attn_q", heads * head_dim, hidden, qkv_bias);
        Matrix(block + "attn_k", kv_heads * head_dim, hidden, qkv_bias);
        Matrix(block + "attn_v", kv_heads * head_dim, hidden, qkv_bias);
        Matrix(block + "attn_output", hidden, heads * head_dim, output_bias);
        if (family.normed_heads) {
            Vector(block + "attn_q_norm.weight", head_dim);
            Vector(block + "attn_k_norm.weight", head_dim);
        }
        Matrix(block + "ffn_gate", ffn, hidden, mlp_bias);
        Matrix(block + "ffn_up", ffn, hidden, mlp_bias);
        Matrix(block + "ffn_down", hidden, ffn, mlp_bias);
    }
    return {};
}

Status ScratchModel::ReadRows(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                              int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                              uint64_t* bytes_read) const {
    CheckSlice(tensor, row_begin, row_count, col_begin, col_count, out.size());
    if (bytes_read != nullptr) *bytes_read += out.size();
    const uint64_t key = WeightKey(seed_, tensor.name);
    const auto rope = std::ranges::find(ropes_, tensor.name, &RopeVector::tensor);
    std::vector<float> row(static_cast<size_t>(col_count));
    for (int64_t i = 0; i < row_count; ++i) {
        if (rope != ropes_.end()) {
            std::copy_n(rope->factors.begin() + col_begin, col_count, row.begin());
        } else if (tensor.dim_count == 1) {
            std::ranges::fill(row, tensor.name.ends_with(".bias") ? 0.0f : 1.0f);
        } else {
            const auto first = static_cast<uint64_t>((row_begin + i) * tensor.cols + col_begin);
            RandomNormal(key, first, deviation_, row);
        }
        const size_t bytes = row.size() * sizeof(float);
        std::memcpy(out.data() + static_cast<size_t>(i) * bytes, row.data(), bytes);
    }
    return {};
}

// Tokens without an embedding row would fail in training or, worse, in a chat.
Status CheckTokenizer(const std::string& path, const Config& config) {
    WEFT_ASSIGN(const int64_t vocab, config.NeedInt({"vocab_size"}, 1, 16 * kMostSize));
    const auto tokenizer = tokenizer::OpenTokenizerFolder(path);
    if (!tokenizer.ok()) {  // (Not needed for random tokens; code that reads text reports its
                            // absence.)
        return tokenizer.error().code == ErrorCode::kNotFound ? Status() : tokenizer.error();
    }
    const int64_t tokens = (*tokenizer)->vocab_size();
    if (tokens <= vocab) return {};
    return MakeError(ErrorCode::kUsage,
                     "{}: 'vocab_size' is {}, but the folder's tokenizer has {} tokens. Set it to "
                     "{} or more",
                     config.where(), vocab, tokens, tokens);
}

}  // namespace

bool LacksWeights(const std::string& path) {
    return IsListed(std::filesystem::path(path) / "config.json") && !HasWeights(path);
}

Result<std::unique_ptr<ModelSource>> OpenScratch(const std::string& path, uint64_t seed) {
    WEFT_ASSIGN(FolderConfig read, ReadFolderConfig(path));
    const auto known = std::ranges::find(kKnown, read.family->model_type, &Beginner::model_type);
    if (known == std::end(kKnown)) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: a model of type '{}' cannot be initialized with random weights. "
                         "Supported: llama, qwen2, qwen3",
                         read.config.where(), read.family->model_type);
    }
    const Config config = read.config;
    WEFT_TRY(CheckTokenizer(path, config));
    auto model = std::make_unique<ScratchModel>(path, seed, std::move(read));
    WEFT_TRY(model->Plan(config, *known));
    return std::unique_ptr<ModelSource>(std::move(model));
}

}  // namespace weft::model_files::hf
