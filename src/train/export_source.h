// The model as it is in training, as a ModelSource: what the model's file was, with the trained
// weights in float32, wherever among the ranks they are. So it is written by quantize, to
// any type.
#pragma once

#include <mutex>
#include <string>

#include "coll/comm.h"
#include "model_files/source_over.h"
#include "train/state.h"

namespace weft::train {

// Rank 0 reads; meanwhile all others are in ServeExport, which ends when the source is destroyed.
class ExportSource final : public model_files::SourceOver {
  public:
    // world: null where there is one rank. Borrows all.
    ExportSource(const model_files::ModelSource& source, const TrainState& state,
                 coll::Comm* world);
    ~ExportSource() override;

    // kUnsupported: it changes.
    Result<std::string> Fingerprint() const override;

  private:
    // Errors: links'.
    Status ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                   int64_t col_count, std::span<std::byte> out,
                   uint64_t* bytes_read) const override;

    const TrainState& state_;
    coll::Comm* const world_;
    mutable std::mutex mutex_;
};

// On the other ranks: gives what rank 0 asks for, until it has done.
Status ServeExport(const model_files::ModelSource& source, const TrainState& state,
                   coll::Comm& world);

}  // namespace weft::train
