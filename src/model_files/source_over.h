// A model on top of an underlying model: it has the name, metadata and tensors of the underlying
// model, except for tensors that a derived class changes or adds. The derived class reads these
// tensors.
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
    std::vector<const WeightFile*> Files() const override { return under_->Files(); }
    std::vector<const WeightFile*> AdapterFiles() const override { return under_->AdapterFiles(); }
    std::string folder() const override { return under_->folder(); }
    // The tensors of the underlying model, in its order, then the added tensors.
    const std::vector<TensorInfo>& tensors() const override { return tensors_; }
    const TensorInfo* FindTensor(std::string_view tensor) const override;
    Status ReadRows(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                    int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                    uint64_t* bytes_read) const final;
    // The underlying model's fingerprint, so that caches for that model stay valid.
    Result<std::string> Fingerprint() const override { return under_->Fingerprint(); }

  protected:
    // Borrows the underlying model.
    explicit SourceOver(const ModelSource& under);
    explicit SourceOver(std::unique_ptr<ModelSource> under);

    const ModelSource& under() const { return *under_; }
    // Marks tensor `index` of the underlying model (an index into tensors()) as changed: ReadOwn
    // reads it, as F32.
    void ChangeToF32(size_t index);
    // Appends a tensor or a matrix, which ReadOwn reads.
    void AddTensor(TensorInfo tensor);
    void AddMatrix(const std::string& name, DType dtype, int64_t rows, int64_t cols);

    // ReadRows for changed and added tensors. index: into tensors(). The bounds have been checked.
    virtual Status ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                           int64_t col_count, std::span<std::byte> out,
                           uint64_t* bytes_read) const = 0;

  private:
    std::unique_ptr<ModelSource> owned_;  // null: the model is borrowed
    const ModelSource* under_;
    std::vector<TensorInfo> tensors_;
    std::map<std::string, size_t, std::less<>> index_;  // into tensors_
    std::vector<bool> own_;                             // by index: changed or added
};

}  // namespace weft::model_files
