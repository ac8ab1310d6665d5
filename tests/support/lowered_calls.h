// A Program lowered to the CPU's calls (backend/cpu/call.h), and properties of every Program's
// calls.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "backend/cpu/call.h"
#include "backend/cpu/lower.h"

namespace weft::support {

struct LoweredCalls {
    LoweredCalls(program::ChunkedProgram list, const backend::CompileOptions& compile,
                 CpuLevel level)
        : chunked(std::move(list)),
          program(chunked.program),
          options(compile),
          buffers(chunked, options, kernels::KernelsFor(level)) {
        // (Names are unique within a chunk.)
        const bool checks = chunked.chunks.size() < 2;
        const Status status = checks ? program::CheckShapes(program) : Status();
        EXPECT_TRUE(status.ok()) << status.error().message;
        EXPECT_TRUE(buffers.Allocate().ok());
        auto lowered = backend::LowerProgram(buffers, 2);
        EXPECT_TRUE(lowered.ok()) << lowered.error().message;
        if (lowered.ok()) lists = std::move(*lowered);
    }
    const char* OpOf(const backend::Call& call) const {
        return program::OpName(program.ops[static_cast<size_t>(call.op)].kind());
    }

    const program::ChunkedProgram chunked;
    const program::Program& program;
    const backend::CompileOptions options;
    backend::Buffers buffers;
    backend::CallLists lists;
};

inline bool HoldsAddress(std::span<const std::byte> memory, const std::byte* at) {
    return at >= memory.data() && at < memory.data() + memory.size();
}
// In inference, weights are constants.
inline bool HoldsAddress(const backend::Buffers& buffers, const std::byte* at) {
    using program::Pool;
    for (const Pool pool : {Pool::kGradient, Pool::kOptimizer, Pool::kCache, Pool::kInput,
                            Pool::kKept, Pool::kBrief}) {
        if (HoldsAddress(buffers.PoolBytes(pool), at)) return true;
    }
    const bool trains = !buffers.packs() && HoldsAddress(buffers.PoolBytes(Pool::kWeight), at);
    return trains || HoldsAddress(buffers.scratch().bytes(), at);
}

// A value of zero bytes may have any address.
inline void ExpectAddressesAreSlots(const LoweredCalls& lowered,
                                    const std::vector<backend::Call>& calls) {
    for (const backend::Call& call : calls) {
        std::set<size_t> slots, filled;
        for (const backend::OperandRef& slot : call.slots) {
            slots.insert(slot.at);
            const bool own = slot.access == backend::MemoryAccess::kOwn;
            if (own || slot.region.bytes > 0) filled.insert(slot.at);
        }
        for (size_t at = 0; at < call.args.bytes().size(); at += sizeof(void*)) {
            const auto* word = call.args.Load<const std::byte*>(static_cast<uint16_t>(at));
            const bool address = HoldsAddress(lowered.buffers, word);
            EXPECT_TRUE(address ? slots.contains(at) : !filled.contains(at))
                << "op " << call.op << " (" << lowered.OpOf(call) << "): byte " << at
                << " of the arguments";
        }
    }
}

// An operand's slots cover all of its rows; a call stays within its scratch.
inline void ExpectSlotsHaveSizesOfValues(const LoweredCalls& lowered,
                                         const std::vector<backend::Call>& calls) {
    const backend::CompileOptions& options = lowered.options;
    const std::span<const std::byte> scratch = lowered.buffers.scratch().bytes();
    for (const backend::Call& call : calls) {
        for (const backend::OperandRef& slot : call.slots) {
            const backend::OperandRegion& region = slot.region;
            if (region.value == program::kNoValue) {
                EXPECT_TRUE(HoldsAddress(scratch, region.data));
                EXPECT_LE(region.data + region.bytes, scratch.data() + scratch.size());
                continue;
            }
            const program::Value& value = lowered.program.value(region.value);
            const int64_t bytes =
                value.storage == program::Storage::kState
                    ? program::StateBytes(value, options.kv_pages * options.page_tokens)
                    : RowBytes(value.dtype,
                               value.shape.Elements(options.max_tokens, options.max_outputs));
            const bool slots = value.storage == program::Storage::kSlots;
            EXPECT_EQ(region.bytes, slots ? bytes * options.state_slots : bytes) << value.name;
        }
    }
}

// One of the calls writes bytes that the other reads or writes.
inline bool CallsCollide(const backend::Call& a, const backend::Call& b) {
    using backend::MemoryAccess;
    for (const backend::OperandRef& x : a.slots) {
        for (const backend::OperandRef& y : b.slots) {
            const bool reads = x.access == MemoryAccess::kRead && y.access == MemoryAccess::kRead;
            const bool own = x.access == MemoryAccess::kOwn || y.access == MemoryAccess::kOwn;
            const bool overlap = x.region.data < y.region.data + y.region.bytes &&
                                 y.region.data < x.region.data + x.region.bytes;
            if (overlap && !reads && !own) return true;
        }
    }
    return false;
}

// Without a barrier between two calls, neither writes bytes that the other reads or writes.
inline void ExpectBarriersKeepWritersApart(const LoweredCalls&,
                                           const std::vector<backend::Call>& calls) {
    for (size_t i = 0; i < calls.size(); ++i) {
        for (size_t j = i + 1; j < calls.size() && !calls[j].barrier; ++j) {
            EXPECT_FALSE(CallsCollide(calls[i], calls[j])) << "calls " << i << " and " << j;
        }
    }
}

}  // namespace weft::support
