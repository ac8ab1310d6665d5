#include "model_files/model_file.h"

#include <algorithm>

#include "hub/cache.h"
#include "hub/short_names.h"
#include "hub/spec.h"
#include "model_files/gguf.h"
#include "model_files/gguf_folder.h"
#include "model_files/hf/folder.h"
#include "model_files/synthetic.h"
#include "tensor/quant.h"

namespace weft::model_files {
namespace {

// Rewords the error of looking up `meant` in the cache for a user who wrote `word`.
Error WithMeaning(const Error& error, const std::string& word, const std::string& meant) {
    if (meant == word) return error;
    const bool named = error.message.starts_with(meant + ": ");
    return MakeError(error.code, "{}: no such file or folder; as {}: {}", word, meant,
                     named ? error.message.substr(meant.size() + 2) : error.message);
}

// Adds a hint to the error of opening the file `word`, which may be a misspelled short name.
Error WithShortNames(const Error& error, const std::string& word) {
    if (error.code != ErrorCode::kNotFound) return error;
    const std::string hint = hub::ShortNameHint(word);
    return hint.empty() ? error : MakeError(error.code, "{}.{}", error.message, hint);
}

// The path that `word` names, or the word of a synthetic model.
Result<std::string> Find(const std::string& word) {
    std::string spec = hub::MeantBy(word);
    if (!hub::IsSpec(spec)) return spec;
    auto cached = hub::FindCached(spec);
    if (!cached.ok()) return WithMeaning(cached.error(), word, spec);
    return cached;
}

}  // namespace

void FingerprintMaker::Add(std::span<const std::byte> bytes) {
    const Sha256Digest digest = Sha256(bytes);
    const std::span<const std::byte> view = std::as_bytes(std::span(digest));
    digests_.insert(digests_.end(), view.begin(), view.end());
}

void FingerprintMaker::Add(uint64_t number) {
    Add(std::as_bytes(std::span(&number, 1)));
}

std::string FingerprintMaker::Finish() const {
    return Hex(Sha256(digests_));
}

void ModelSource::CheckSlice(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                             int64_t col_begin, int64_t col_count, size_t out_bytes) {
    const int64_t block = Info(tensor.dtype).block_elements;
    WEFT_CHECK(row_begin >= 0 && row_count >= 0 && row_begin <= tensor.rows - row_count);
    WEFT_CHECK(col_begin >= 0 && col_count >= 0 && col_begin <= tensor.cols - col_count);
    WEFT_CHECK(col_begin % block == 0 && col_count % block == 0);
    WEFT_CHECK(out_bytes == static_cast<size_t>(row_count) *
                                static_cast<size_t>(RowBytes(tensor.dtype, col_count)));
}

Result<const TensorInfo*> ModelSource::NeedTensor(std::string_view tensor) const {
    const TensorInfo* found = FindTensor(tensor);
    if (found != nullptr) return found;
    return MakeError(ErrorCode::kNotFound, "{}: tensor '{}' is missing, and this model needs it",
                     name(), tensor);
}

Result<std::vector<float>> ModelSource::ReadFloats(const TensorInfo& tensor,
                                                   uint64_t* bytes_read) const {
    std::vector<std::byte> raw(tensor.bytes);
    WEFT_TRY(ReadRows(tensor, 0, tensor.rows, 0, tensor.cols, raw, bytes_read));
    std::vector<float> floats(static_cast<size_t>(tensor.rows * tensor.cols));
    DequantizeRow(tensor.dtype, raw, floats);
    return floats;
}

uint64_t ModelSource::TotalBytes() const {
    uint64_t total = 0;
    for (const TensorInfo& tensor : tensors()) total += tensor.bytes;
    return total;
}

std::map<std::string_view, uint64_t> ModelSource::BytesByType() const {
    std::map<std::string_view, uint64_t> bytes;
    for (const TensorInfo& tensor : tensors()) bytes[Info(tensor.dtype).name] += tensor.bytes;
    return bytes;
}

std::string_view ModelSource::MainType() const {
    const auto bytes = BytesByType();
    const auto most = std::ranges::max_element(bytes, {}, [](const auto& b) { return b.second; });
    return most == bytes.end() ? std::string_view() : most->first;
}

int64_t ModelSource::Parameters() const {
    int64_t count = 0;
    for (const TensorInfo& tensor : tensors()) count += tensor.rows * tensor.cols;
    return count;
}

Result<std::string> PathOfModel(const std::string& word) {
    WEFT_ASSIGN(const std::string spec, Find(word));
    return Synthetic::IsSpec(spec) ? "" : spec;
}

Result<std::unique_ptr<ModelSource>> OpenModel(const std::string& word, ReadPlan* plan) {
    WEFT_ASSIGN(std::string spec, Find(word));
    if (Synthetic::IsSpec(spec)) {
        WEFT_ASSIGN(Synthetic synthetic, Synthetic::Make(spec));
        return std::unique_ptr<ModelSource>(std::make_unique<Synthetic>(std::move(synthetic)));
    }
    if (IsGgufFolder(spec)) {
        WEFT_ASSIGN(spec, FindGguf(spec));
    }
    if (hf::IsFolder(spec)) return hf::OpenFolder(spec, plan);
    auto gguf = Gguf::Open(spec, plan);
    if (!gguf.ok()) return WithShortNames(gguf.error(), word);
    return std::unique_ptr<ModelSource>(std::make_unique<Gguf>(std::move(gguf).value()));
}

}  // namespace weft::model_files
