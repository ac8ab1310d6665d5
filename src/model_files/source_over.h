// A model that lies over another: the same name, metadata and tensors, but for some that it changes
// or adds. Who derives from this says which, and reads those.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model_files/model_file.h"

namespace weft::model_files {

class SourceOver : public ModelSource {
  public:
    const std::string& name() const override { return under_->name(); }
    const Metadata& meta() const override { return under_->meta(); }
    std::string folder() const override { return under_->folder(); }
    // Those of the model below, in its order, then those that are added.
    const std::vector<TensorInfo>& tensors() const override { return tensors_; }
    const TensorInfo* FindTensor(std::string_view tensor) const override;
    Status ReadRows(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                    int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                    uint64_t* bytes_read) const final;
    // Of the model below: what is known of it holds with any change.
    Result<std::string> Fingerprint() const override { return under_->Fingerprint(); }

  protected:
    // Borrows the model below.
    explicit SourceOver(const ModelSource& under);
    explicit SourceOver(std::unique_ptr<ModelSource> under);

    const ModelSource& under() const { return *under_; }
    // Makes a tensor of the model below, by its place in tensors(), this one's own to read, as F32.
    void ChangeToF32(size_t index);
    // Puts a matrix behind all others.
    void AddMatrix(const std::string& name, DType dtype, int64_t rows, int64_t cols);

    // ReadRows of a tensor that was changed or added, by its place in tensors(). The bounds are
    // right.
    virtual Status ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                           int64_t col_count, std::span<std::byte> out,
                           uint64_t* bytes_read) const = 0;

  private:
    std::unique_ptr<ModelSource> owned_;  // null where it is borrowed
    const ModelSource* under_;
    std::vector<TensorInfo> tensors_;
    std::map<std::string, size_t, std::less<>> index_;  // into tensors_
    std::vector<bool> own_;                             // by index
};

}  // namespace weft::model_files
