#include "model_files/hf/folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <unordered_map>

#include "model_files/hf/assembly.h"
#include "model_files/hf/folder_config.h"

namespace weft::model_files::hf {
namespace {

class FolderModel final : public ModelSource {
  public:
    FolderModel(std::string path, std::string config_text, std::unique_ptr<TensorFiles> files,
                std::vector<std::byte> header_bytes, std::vector<MetaEntry> entries,
                Assembled assembled)
        : path_(std::move(path)),
          config_text_(std::move(config_text)),
          files_(std::move(files)),
          header_bytes_(std::move(header_bytes)),
          meta_(path_, std::move(entries)),
          tensors_(std::move(assembled.tensors)),
          matrices_(std::move(assembled.matrices)) {
        uint64_t offset = 0;  // as if all tensors were contiguous in one file
        for (size_t i = 0; i < tensors_.size(); ++i) {
            tensors_[i].offset = offset;
            offset += tensors_[i].bytes;
            index_.emplace(tensors_[i].name, i);
        }
    }

    const std::string& name() const override { return path_; }
    const Metadata& meta() const override { return meta_; }
    std::vector<const WeightFile*> Files() const override {
        std::vector<const WeightFile*> files;
        for (const WeightFile& file : files_->files()) files.push_back(&file);
        return files;
    }
    std::string folder() const override { return path_; }
    const std::vector<TensorInfo>& tensors() const override { return tensors_; }
    const TensorInfo* FindTensor(std::string_view tensor) const override {
        const auto found = index_.find(tensor);
        return found == index_.end() ? nullptr : &tensors_[found->second];
    }
    Status ReadRows(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                    int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                    uint64_t* bytes_read) const override {
        CheckSlice(tensor, row_begin, row_count, col_begin, col_count, out.size());
        if (bytes_read != nullptr) *bytes_read += out.size();
        if (out.empty()) return {};
        const auto found = index_.find(tensor.name);
        WEFT_CHECK(found != index_.end());
        Status read =
            matrices_[found->second]->Read({row_begin, row_count, col_begin, col_count}, out);
        if (read.ok() || read.error().code == ErrorCode::kIo) return read;
        return MakeError(read.error().code, "{}: tensor '{}': {}", path_, tensor.name,
                         read.error().message);
    }
    Result<std::string> Fingerprint() const override;

  private:
    std::string path_, config_text_;
    std::unique_ptr<TensorFiles> files_;   // matrices_ read from these
    std::vector<std::byte> header_bytes_;  // meta_ points into it
    Metadata meta_;
    std::vector<TensorInfo> tensors_;
    std::vector<MatrixPtr> matrices_;
    std::unordered_map<std::string_view, size_t> index_;
};

Result<std::string> FolderModel::Fingerprint() const {
    FingerprintMaker maker;
    maker.Add(std::as_bytes(std::span(config_text_)));
    for (const Sha256Digest& digest : files_->header_digests()) {
        maker.Add(std::as_bytes(std::span(digest)));
    }
    for (const WeightFile& file : files_->files()) maker.Add(file.size_bytes());
    return maker.Finish();
}

// mlx-lm changes the weights of some families: it transposes convolutions, splits projections, or
// takes experts apart. Only families that its `sanitize` leaves unchanged, or whose experts it only
// stacks, are supported.
Status CheckMlxFamily(const Family& family, const std::string& path) {
    constexpr std::array<std::string_view, 21> kSame = {
        "llama",  "mistral3", "qwen2",         "qwen2moe", "qwen3",    "qwen3moe",  "gemma",
        "gemma2", "gemma3",   "phi3",          "granite",  "smollm3",  "seed_oss",  "olmo2",
        "glm4",   "glm4moe",  "hunyuan-dense", "exaone4",  "ernie4_5", "command-r", "cohere2"};
    if (std::ranges::find(kSame, family.architecture) != kSame.end()) return {};
    std::string list;
    for (const std::string_view name : kSame) {
        list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
    }
    return MakeError(ErrorCode::kUnsupported,
                     "{}: an MLX folder with architecture '{}'; mlx-lm may have changed the "
                     "weights of such a model. Supported MLX architectures: {}. Get the model's "
                     "original folder, or a GGUF file",
                     path, family.architecture, list);
}

}  // namespace

bool IsFolder(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_directory(path, ignored);
}

Result<std::unique_ptr<ModelSource>> OpenFolder(const std::string& path, ReadPlan* plan) {
    WEFT_ASSIGN(FolderConfig read, ReadFolderConfig(path));
    WEFT_ASSIGN(Quantization quantization, ReadQuantization(read.config, read.text));
    if (quantization.method == Method::kNone) {
        WEFT_ASSIGN(quantization, ReadQuantizationFile(path));
    }
    if (quantization.method == Method::kMlx) WEFT_TRY(CheckMlxFamily(*read.family, path));
    WEFT_ASSIGN(TensorFiles opened, TensorFiles::Open(path, plan));
    auto files = std::make_unique<TensorFiles>(std::move(opened));
    Assembly assembly(path, *read.family, read.config, quantization, *files);
    WEFT_ASSIGN(Assembled assembled, std::move(assembly).Run());
    const TensorFacts& facts = assembled.facts;
    if (facts.draft_heads > 0 || !facts.draft_fault.empty() || !facts.numbers.empty()) {
        WEFT_ASSIGN(read, ParseFolderConfig(std::move(read.text), path, assembled.facts));
    }
    return std::unique_ptr<ModelSource>(std::make_unique<FolderModel>(
        path, read.text + quantization.file_text, std::move(files), std::move(read.header),
        std::move(read.entries), std::move(assembled)));
}

}  // namespace weft::model_files::hf
