// A model and a separate draft head, EAGLE-3 or DFlash (hf/draft_folder.h), as one ModelSource, so
// that ranks load, stream, shard and compare both together. The head's tensors are named "draft." +
// their own name; its metadata keys begin with its architecture as in its folder.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model_files/source_over.h"

namespace weft::model_files {

inline constexpr std::string_view kDraftPrefix = "draft.";

class DraftedSource final : public SourceOver {
  public:
    DraftedSource(std::unique_ptr<ModelSource> model, std::unique_ptr<ModelSource> head);

    const Metadata& meta() const override { return meta_; }
    std::vector<const WeightFile*> Files() const override;
    const TensorInfo* FindNeeded(std::string_view tensor,
                                 std::span<const int64_t> dims) const override;
    // Over the head and the model.
    Result<std::string> Fingerprint() const override;

  private:
    Status ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                   int64_t col_count, std::span<std::byte> out,
                   uint64_t* bytes_read) const override;

    std::unique_ptr<ModelSource> head_;
    size_t first_;  // index of the head's first tensor
    Metadata meta_;
};

// Most rows of a block of a DFlash head: the last token, and its drafts.
inline constexpr int64_t kMostBlock = 257;

// Whether sources of this architecture are draft heads.
bool IsDraftArchitecture(std::string_view architecture);
// The architecture of the draft head that a source has beside the model; "": none.
std::string DraftArchitecture(const ModelSource& source);

// The head of a source that has one, under its own names. Borrows the source.
class DraftHeadSource final : public ModelSource {
  public:
    explicit DraftHeadSource(const ModelSource& both);

    const std::string& name() const override { return name_; }
    const Metadata& meta() const override { return both_.meta(); }
    const std::vector<TensorInfo>& tensors() const override { return tensors_; }
    const TensorInfo* FindTensor(std::string_view tensor) const override;
    Status ReadRows(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                    int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                    uint64_t* bytes_read) const override;
    Result<std::string> Fingerprint() const override { return both_.Fingerprint(); }

  private:
    const ModelSource& both_;
    std::string name_;  // the head's folder
    std::vector<TensorInfo> tensors_;
    std::unordered_map<std::string_view, size_t> index_;
};

// Whether `word` (as of OpenModel) means the folder of a draft head.
bool IsDraftHead(const std::string& word);
// Tokens that such a head drafts in one run; 0: one at a time, or the folder cannot be read.
int64_t DraftsAtOnce(const std::string& word);
// `model` with the head of `word`; `model` itself if `word` is empty. Errors: as OpenModel; kUsage:
// not a draft head.
Result<std::unique_ptr<ModelSource>> WithDraftHead(std::unique_ptr<ModelSource> model,
                                                   const std::string& word);

}  // namespace weft::model_files
