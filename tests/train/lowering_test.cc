// Training Programs lowered to calls of CPU kernels: every kind of model, layout and optimizer
// lowers, and the calls' metadata is right for barriers, slots and overlapped transfers.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "support/every_op.h"
#include "support/lowered_calls.h"
#include "support/training_case.h"

namespace weft::train {
namespace {

using backend::Call;
using backend::OperandRef;
using program::Storage;
using program::ValueId;
using support::LoweredCalls;
using support::TrainingCase;
using support::TrainingRank;

void ForEachLowered(const std::function<void(const LoweredCalls&, const std::vector<Call>&)>& f) {
    for (const TrainingCase& c : support::kEveryTrainingOp) {
        SCOPED_TRACE(c.Name());
        const TrainingRank rank(c);
        if (rank.program().chunks.empty()) continue;
        for (const CpuLevel level : {CpuLevel::kReference, BestCpuLevel(DetectCpu())}) {
            const LoweredCalls lowered(rank.program(), c.compile(), level);
            f(lowered, lowered.lists.plain);
        }
    }
}

TEST(Lowering, EveryAddressInArgumentsIsASlot) {
    ForEachLowered(support::ExpectAddressesAreSlots);
}

TEST(Lowering, SlotsHaveTheSizesOfTheirValues) {
    ForEachLowered(support::ExpectSlotsHaveSizesOfValues);
}

TEST(Lowering, BarriersKeepWritersApart) {
    ForEachLowered(support::ExpectBarriersKeepWritersApart);
}

// An op's calls write its outputs. They, or an earlier call that prepares data for several ops
// (positions, rows of experts), read its inputs.
TEST(Lowering, CallsTouchTheOperandsOfTheirOps) {
    ForEachLowered([](const LoweredCalls& lowered, const std::vector<Call>& calls) {
        std::vector<std::set<ValueId>> read(lowered.program.ops.size()), written(read);
        std::set<ValueId> prepared;
        for (const Call& call : calls) {
            const auto op = static_cast<size_t>(call.op);
            for (const OperandRef& slot : call.slots) {
                if (slot.access != backend::MemoryAccess::kWrite) {
                    read[op].insert(slot.region.value);
                }
                if (slot.access != backend::MemoryAccess::kRead) {
                    written[op].insert(slot.region.value);
                }
            }
        }
        for (size_t i = 0; i < lowered.program.ops.size(); ++i) {
            const program::Op& op = lowered.program.ops[i];
            const program::Operands operands = program::OperandsOf(op).value();
            for (size_t k = 0; k < op.inputs.size(); ++k) {
                const bool shared = operands.inputs[k]->index && prepared.contains(op.inputs[k]);
                EXPECT_TRUE(shared || read[i].contains(op.inputs[k]))
                    << "op " << i << ' ' << program::OpName(op.kind()) << " input " << k;
            }
            for (const ValueId id : op.outputs) {
                EXPECT_TRUE(written[i].contains(id))
                    << "op " << i << ' ' << program::OpName(op.kind());
            }
            prepared.insert(read[i].begin(), read[i].end());
        }
    });
}

// Steps of another slot have separate inputs and kept values, and share everything else.
TEST(Lowering, AddressesMoveWithTheSlot) {
    ForEachLowered([](const LoweredCalls& lowered, const std::vector<Call>& calls) {
        const std::vector<int32_t> order(40);
        const kernels::Sequence sequence{0, 40, 0, {}};
        backend::Bindings bindings{.tokens = 40,
                                   .outputs = 40,
                                   .sequences = {&sequence, 1},
                                   .token_order = order.data(),
                                   .own_begin = 1,
                                   .own_rows = 20};
        for (const Call& call : calls) {
            Call first = call;
            BindCall(first, bindings);
            bindings.slot = 2;
            Call third = first;
            BindCall(third, bindings);
            bindings.slot = 0;
            for (const OperandRef& slot : call.slots) {
                if (slot.at == OperandRef::kNowhere) continue;
                const auto* before = first.args.Load<const std::byte*>(slot.at);
                const auto* after = third.args.Load<const std::byte*>(slot.at);
                const ValueId id = slot.region.value;
                const ptrdiff_t moved = id == program::kNoValue
                                            ? 0
                                            : lowered.buffers.At(id, 2) - lowered.buffers.At(id, 0);
                EXPECT_EQ(after - before, moved) << lowered.OpOf(call);
            }
            BindCall(third, bindings);
            EXPECT_TRUE(std::ranges::equal(third.args.bytes(), first.args.bytes()))
                << lowered.OpOf(call);
        }
    });
}

// Values that live from the forward to the backward part are in each slot's own memory.
TEST(Lowering, SlotsKeepTheirValuesApart) {
    ForEachLowered([](const LoweredCalls& lowered, const std::vector<Call>&) {
        const program::Program& program = lowered.program;
        for (const program::ModelChunk& chunk : lowered.chunked.chunks) {
            std::set<ValueId> forward;
            for (size_t i = chunk.begin; i < chunk.evaluate_begin; ++i) {
                for (const ValueId id : program.ops[i].outputs) forward.insert(program.HomeOf(id));
            }
            for (size_t i = chunk.backward_begin; i < chunk.end; ++i) {
                for (ValueId id : program.ops[i].inputs) {
                    id = program.HomeOf(id);
                    if (!forward.contains(id)) continue;
                    const std::byte *first = lowered.buffers.At(id, 0),
                                    *second = lowered.buffers.At(id, 1);
                    const program::Value& value = program.value(id);
                    EXPECT_GE(second - first, RowBytes(value.dtype, value.shape.Elements(40, 40)))
                        << value.name;
                }
            }
        }
    });
}

// A call that touches bytes of an overlapped transfer waits for it. (Overlapped transfers run in
// order.)
TEST(Lowering, CallsWaitForTransfersBeside) {
    size_t beside = 0;
    ForEachLowered([&](const LoweredCalls&, const std::vector<Call>& calls) {
        size_t awaited = 0;  // 1 + index of a call
        for (size_t i = 0; i < calls.size(); ++i) {
            awaited = std::max(awaited, static_cast<size_t>(calls[i].waits_for));
            EXPECT_LE(calls[i].waits_for, static_cast<int32_t>(i));
            if (calls[i].beside) ++beside;
            for (size_t k = awaited; k < i && !calls[i].beside; ++k) {
                EXPECT_FALSE(calls[k].beside && support::CallsCollide(calls[k], calls[i]))
                    << "calls " << k << " and " << i;
            }
        }
    });
    EXPECT_GT(beside, 100u);
}

// Every result of a pass's op has a reader: inputs of the loss's backward ops are recomputed and
// gathered as for every other op.
TEST(Lowering, EveryResultHasAReader) {
    for (const TrainingCase& c : support::kEveryTrainingOp) {
        SCOPED_TRACE(c.Name());
        const TrainingRank rank(c);
        const program::ChunkedProgram& list = rank.program();
        std::set<ValueId> read;
        for (const program::ModelChunk& chunk : list.chunks) {
            read.insert(
                {chunk.loss.losses, chunk.loss.evaluated, chunk.loss.predicted, chunk.side_output});
        }
        for (const program::Op& op : list.program.ops) {
            for (const ValueId id : op.inputs) read.insert(list.program.HomeOf(id));
        }
        for (const program::Op& op : list.program.ops) {
            if (op.outputs.size() != 1) continue;
            const ValueId id = list.program.HomeOf(op.outputs[0]);
            EXPECT_TRUE(read.contains(id) || list.program.value(id).storage != Storage::kActivation)
                << program::OpName(op.kind()) << ' ' << list.program.value(id).name;
        }
    }
}

}  // namespace
}  // namespace weft::train
