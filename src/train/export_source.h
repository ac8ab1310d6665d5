// The model as it is in training, as a ModelSource: what the model's file was, with the trained
// weights in float32, wherever among the ranks they are. So it is written by formats/quantize, to
// any type.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "coll/comm.h"
#include "formats/model_file.h"
#include "train/state.h"

namespace weft::train {

// Rank 0 reads; meanwhile all others are in ServeExport, which ends when the source is destroyed.
class ExportSource final : public formats::ModelSource {
  public:
    // world: null where there is one rank. Borrows all.
    ExportSource(const formats::ModelSource& source, const TrainState& state, coll::Comm* world);
    ~ExportSource() override;

    const std::string& name() const override { return source_.name(); }
    const formats::Metadata& meta() const override { return source_.meta(); }
    std::string folder() const override { return source_.folder(); }
    const std::vector<formats::TensorInfo>& tensors() const override { return tensors_; }
    const formats::TensorInfo* FindTensor(std::string_view tensor) const override;
    // Errors: links'.
    Status ReadRows(const formats::TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                    int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                    uint64_t* bytes_read) const override;
    Result<std::string> Fingerprint() const override;

  private:
    const formats::ModelSource& source_;
    const TrainState& state_;
    coll::Comm* const world_;
    std::vector<formats::TensorInfo> tensors_;
    std::map<std::string, size_t, std::less<>> trained_;  // place in tensors_
    mutable std::mutex mutex_;
};

// On the other ranks: gives what rank 0 asks for, until it has done.
Status ServeExport(const formats::ModelSource& source, const TrainState& state, coll::Comm& world);

}  // namespace weft::train
