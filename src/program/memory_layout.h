// Where each value of a Program lives on a device: a pool, and an offset in it. Written once for
// all devices; a device says how many bytes a weight takes as it packs it.
//
// Several slots: training steps that are under way at once (model_chunk.h) have their own inputs,
// and their own copies of what lives from a forward part into its backward part. All else is
// shared.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "program/arena.h"
#include "program/model_chunk.h"
#include "program/pool.h"

namespace weft::program {

struct ValuePlace {
    Pool pool = Pool::kNone;
    int64_t offset = 0;  // in the pool's first slot
};

struct LayoutOptions {
    int64_t tokens = 0, outputs = 0;  // most rows of a step
    int64_t positions = 0;            // of each cache
    int64_t state_slots = 0;          // of each recurrent state
    int slots = 1;
    bool overlap = false;       // as TrainingArenaOptions
    bool in_halves = false;     // PlanArenaInHalves
    std::vector<ValueId> keep;  // activations that live to the end, of a Program without chunks
    int64_t align = 64;
    // Not 0: no value lies across a multiple of so many bytes, a multiple of `align`; larger values
    // begin at one, and none shares the last one that they reach. (Devices have no larger buffers.)
    int64_t block_bytes = 0;
    // Bytes of a weight. Null: those of its elements.
    std::function<int64_t(ValueId id)> weight_bytes;
};

class MemoryLayout {
  public:
    MemoryLayout() = default;
    MemoryLayout(const ChunkedProgram& chunked, const LayoutOptions& options);

    const ValuePlace& PlaceOf(ValueId id) const { return places_[static_cast<size_t>(id)]; }
    // In the pool.
    int64_t OffsetOf(ValueId id, int slot) const {
        const ValuePlace& place = PlaceOf(id);
        return place.offset + slot * SlotStride(place.pool);
    }
    // Bytes from a slot to the next; 0 where slots share the pool.
    int64_t SlotStride(Pool pool) const { return strides_[Index(pool)]; }
    int64_t PoolBytes(Pool pool) const { return bytes_[Index(pool)]; }

  private:
    static size_t Index(Pool pool) { return static_cast<size_t>(pool); }
    void PlaceLasting(const Program& program, const LayoutOptions& options);
    void PlaceActivations(const ChunkedProgram& chunked, const LayoutOptions& options);
    void PlaceViews(const Program& program);
    void Put(const ArenaPlan& plan, Pool pool);

    std::vector<ValuePlace> places_;
    std::array<int64_t, kPools> bytes_{}, strides_{};
};

}  // namespace weft::program
