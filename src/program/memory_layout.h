// The place of each value of a Program on a device: a pool and an offset in it. All devices share
// this code; a device provides the packed size of a weight.
//
// A slot belongs to one of several concurrent training steps (model_chunk.h). Each slot has its own
// inputs, and its own copies of values that live from a forward part into its backward part. Slots
// share all other values.
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
    int64_t tokens = 0, outputs = 0;  // maximum rows of a step
    int64_t positions = 0;            // positions of each KV cache
    int64_t state_slots = 0;          // slots of each recurrent state
    int slots = 1;
    bool overlap = false;       // as TrainingArenaOptions
    bool in_halves = false;     // PlanArenaInHalves
    std::vector<ValueId> keep;  // activations that live to the end (without chunks)
    int64_t align = 64;
    // Not 0: no value crosses a multiple of this number of bytes, which is a multiple of `align`. A
    // larger value begins at a multiple, and no other value shares its last block. (Devices limit
    // the size of a buffer.)
    int64_t block_bytes = 0;
    // Bytes of a weight. Null: the size of its elements.
    std::function<int64_t(ValueId id)> weight_bytes;
};

class MemoryLayout {
  public:
    MemoryLayout() = default;
    MemoryLayout(const ChunkedProgram& chunked, const LayoutOptions& options);

    const ValuePlace& PlaceOf(ValueId id) const { return places_[static_cast<size_t>(id)]; }
    // Offset in the pool.
    int64_t OffsetOf(ValueId id, int slot) const {
        const ValuePlace& place = PlaceOf(id);
        return place.offset + slot * SlotStride(place.pool);
    }
    // Bytes from one slot to the next; 0: all slots share the pool.
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
