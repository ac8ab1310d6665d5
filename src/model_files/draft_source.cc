#include "model_files/draft_source.h"

#include <algorithm>

#include "base/check.h"
#include "model_files/hf/draft_folder.h"

namespace weft::model_files {
namespace {

std::vector<MetaEntry> Entries(const ModelSource& model, const ModelSource& head) {
    std::vector<MetaEntry> entries = model.meta().entries();
    const std::string keys = DraftArchitecture(head) + ".";
    for (const MetaEntry& entry : head.meta().entries()) {
        if (entry.key.starts_with(keys)) entries.push_back(entry);
    }
    return entries;
}

}  // namespace

DraftedSource::DraftedSource(std::unique_ptr<ModelSource> model, std::unique_ptr<ModelSource> head)
    : SourceOver(std::move(model)),
      head_(std::move(head)),
      first_(tensors().size()),
      meta_(under().name(), Entries(under(), *head_)) {
    for (TensorInfo tensor : head_->tensors()) {
        tensor.name.insert(0, kDraftPrefix);
        AddTensor(std::move(tensor));
    }
}

std::vector<const WeightFile*> DraftedSource::Files() const {
    std::vector<const WeightFile*> files = under().Files();
    for (const WeightFile* file : head_->Files()) files.push_back(file);
    return files;
}

const TensorInfo* DraftedSource::FindNeeded(std::string_view tensor,
                                            std::span<const int64_t> dims) const {
    const bool own = tensor.starts_with(kDraftPrefix);
    return own ? FindTensor(tensor) : under().FindNeeded(tensor, dims);
}

Result<std::string> DraftedSource::Fingerprint() const {
    FingerprintMaker maker;
    for (const ModelSource* source : {&under(), static_cast<const ModelSource*>(head_.get())}) {
        WEFT_ASSIGN(const std::string own, source->Fingerprint());
        maker.Add(std::as_bytes(std::span(own)));
    }
    return maker.Finish();
}

Status DraftedSource::ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                              int64_t col_count, std::span<std::byte> out,
                              uint64_t* bytes_read) const {
    return head_->ReadRows(head_->tensors()[index - first_], row_begin, row_count, col_begin,
                           col_count, out, bytes_read);
}

bool IsDraftArchitecture(std::string_view architecture) {
    return std::ranges::find(hf::kHeadArchitectures, architecture) !=
           std::end(hf::kHeadArchitectures);
}

std::string DraftArchitecture(const ModelSource& source) {
    for (const std::string_view name : hf::kHeadArchitectures) {
        if (source.meta().Has(std::string(name) + ".block_count")) return std::string(name);
    }
    return "";
}

DraftHeadSource::DraftHeadSource(const ModelSource& both) : both_(both) {
    const auto folder = both.meta().String(DraftArchitecture(both) + ".folder");
    name_ = folder.ok() ? *folder : both.name();
    for (TensorInfo tensor : both.tensors()) {
        if (!tensor.name.starts_with(kDraftPrefix)) continue;
        tensor.name.erase(0, kDraftPrefix.size());
        tensors_.push_back(std::move(tensor));
    }
    for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

const TensorInfo* DraftHeadSource::FindTensor(std::string_view tensor) const {
    const auto found = index_.find(tensor);
    return found == index_.end() ? nullptr : &tensors_[found->second];
}

Status DraftHeadSource::ReadRows(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                                 int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                                 uint64_t* bytes_read) const {
    const TensorInfo* of_both = both_.FindTensor(std::string(kDraftPrefix) + tensor.name);
    WEFT_CHECK(of_both != nullptr);
    return both_.ReadRows(*of_both, row_begin, row_count, col_begin, col_count, out, bytes_read);
}

bool IsDraftHead(const std::string& word) {
    const auto path = PathOfModel(word);
    return path.ok() && hf::IsDraftFolder(*path);
}

int64_t DraftsAtOnce(const std::string& word) {
    const auto path = PathOfModel(word);
    return path.ok() ? hf::BlockOfFolder(*path) : 0;
}

Result<std::unique_ptr<ModelSource>> WithDraftHead(std::unique_ptr<ModelSource> model,
                                                   const std::string& word) {
    if (word.empty()) return model;
    WEFT_ASSIGN(std::unique_ptr<ModelSource> head, OpenModel(word));
    if (DraftArchitecture(*head).empty()) {
        return MakeError(ErrorCode::kUsage, "--draft {}: not the folder of a draft head", word);
    }
    return std::unique_ptr<ModelSource>(
        std::make_unique<DraftedSource>(std::move(model), std::move(head)));
}

}  // namespace weft::model_files
