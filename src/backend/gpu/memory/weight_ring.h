// Weights that steps read from the host: the stacks of experts that only streamed ops use
// (program/placement.h). They share a few places in device memory. Weight i has place i mod
// kPlaces, so the host can write a weight while the device computes with the weights before it.
//
// Thread: one caller, except that several threads may call Keep() for different weights.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/executable.h"
#include "backend/gpu/memory/buffers.h"
#include "backend/gpu/memory/upload.h"
#include "base/result.h"

namespace weft::backend::on_gpu {

class WeightRing {
  public:
    WeightRing(const program::Program& program, const Buffers& buffers, Uploader& uploader)
        : program_(program), buffers_(buffers), uploader_(uploader) {}
    // readers: threads that read the weights; null: the caller alone.
    void Plan(ThreadTeam* readers);
    void Keep(size_t weight, RowSource source) { sources_[weight] = std::move(source); }

    // The last submission that reads what a weight's place holds; 0: none.
    uint64_t ReaderOf(size_t weight) const { return readers_of_[weight % Buffers::kRingPlaces]; }
    void NoteReader(size_t weight, uint64_t submission) {
        readers_of_[weight % Buffers::kRingPlaces] = submission;
    }
    // Whether the weight is in its place.
    bool Has(size_t weight) const {
        return held_[weight % Buffers::kRingPlaces] == static_cast<int64_t>(weight);
    }
    // Writes the weight to its slot, whose readers must have ended. Errors: errors of the source
    // and of the device.
    Status Bring(size_t weight);

  private:
    const program::Program& program_;
    const Buffers& buffers_;
    Uploader& uploader_;
    ThreadTeam* team_ = nullptr;
    std::vector<RowSource> sources_;                           // by weight
    std::array<int64_t, Buffers::kRingPlaces> held_{};         // by place: the weight; -1: none
    std::array<uint64_t, Buffers::kRingPlaces> readers_of_{};  // by place
};

}  // namespace weft::backend::on_gpu
