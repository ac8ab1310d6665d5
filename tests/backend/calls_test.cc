// Slots of calls: a Program with every op of inference is lowered, and each address in a call's
// arguments must be one of its slots. Barriers, halves and binding use the slots, so an address
// without one would be a race.
#include "backend/cpu/call.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/step_parts.h"
#include "support/every_op.h"
#include "support/lowered_calls.h"

namespace weft::backend {
namespace {

using program::Op;
using program::OpKind;
using program::Program;
using program::Storage;
using program::ValueId;

using Lowered = support::LoweredCalls;

// Calls f(lowered, calls) for both lists, with prepared and unprepared weights.
template <typename F>
void ForEachList(const F& f) {
    for (const CpuLevel level : {CpuLevel::kReference, BestCpuLevel(DetectCpu())}) {
        for (const DType weights : {DType::kF32, DType::kQ8_0, DType::kBF16}) {
            const Lowered lowered({support::EveryOp(weights).program}, support::SmallSteps(),
                                  level);
            f(lowered, lowered.lists.plain);
            f(lowered, lowered.lists.adapted);
        }
    }
}

TEST(Calls, EveryAddressInArgumentsIsASlot) {
    ForEachList(support::ExpectAddressesAreSlots);
}

TEST(Calls, SlotsHaveTheSizesOfTheirValues) {
    ForEachList(support::ExpectSlotsHaveSizesOfValues);
}

// Every activation is written by its writer's calls. It is read by its readers' calls, or by an
// earlier call that prepares it for them.
TEST(Calls, TouchWhatTheirOpsNameAsOperands) {
    ForEachList([](const Lowered& lowered, const std::vector<Call>& calls) {
        const Program& program = lowered.program;
        std::vector<int32_t> read(program.values.size(), -1), written(read);
        for (const Call& call : calls) {
            for (const OperandRef& slot : call.slots) {
                if (slot.region.value == program::kNoValue) continue;
                const auto id = static_cast<size_t>(slot.region.value);
                if (slot.access != MemoryAccess::kWrite) read[id] = std::max(read[id], call.op);
                if (slot.access != MemoryAccess::kRead) {
                    written[id] = std::max(written[id], call.op);
                }
            }
        }
        const bool adapts = &calls == &lowered.lists.adapted;
        for (size_t i = 0; i < program.ops.size(); ++i) {
            const Op& op = program.ops[i];
            if (program::IsOfAdapters(op.kind()) && !adapts) continue;
            for (const ValueId id : op.inputs) {
                const Storage storage = program.value(id).storage;
                if (storage == Storage::kActivation || storage == Storage::kState ||
                    storage == Storage::kSlots) {
                    EXPECT_GE(read[static_cast<size_t>(id)], 0) << program.value(id).name;
                }
            }
            for (const ValueId id : op.outputs) {
                EXPECT_GE(written[static_cast<size_t>(id)], static_cast<int32_t>(i))
                    << program.value(id).name;
            }
        }
    });
}

TEST(Calls, BarriersKeepWritersApart) {
    ForEachList(support::ExpectBarriersKeepWritersApart);
}

TEST(Calls, OpsWhoseRowsNeedOthersAreNotCut) {
    ForEachList([](const Lowered& lowered, const std::vector<Call>& calls) {
        for (const Call& call : calls) {
            const OpKind kind = lowered.program.ops[static_cast<size_t>(call.op)].kind();
            const bool cut =
                program::RowOf(kind).Is(program::Trait::kRowWise | program::Trait::kSeesEarlier);
            EXPECT_TRUE(call.whole || cut) << program::OpName(kind);
        }
    });
}

// A split call moves exactly its addresses with rows.
TEST(Calls, HalvesMoveWhatIsByRows) {
    ForEachList([&](const Lowered&, const std::vector<Call>& calls) {
        for (const Call& lowered : calls) {
            const bool transfer = lowered.communicates() && lowered.kind != CallKind::kAllReduce;
            if (lowered.per_output() || lowered.whole || transfer) continue;
            Call whole = lowered;
            BindCall(whole, {5, 3});
            Call half = whole;
            ShiftRows(half, {2, 3, {}, {}, {}, {}});
            const bool finds = whole.bound == Bound::kSequences || whole.bound == Bound::kStates ||
                               whole.bound == Bound::kAdapted;
            for (const OperandRef& slot : whole.slots) {
                if (slot.at == OperandRef::kNowhere) continue;
                EXPECT_EQ(half.args.Load<const std::byte*>(slot.at) -
                              whole.args.Load<const std::byte*>(slot.at),
                          finds ? 0 : 2 * slot.region.row_bytes);
            }
            if (finds || whole.rows.at == OperandRef::kNowhere) continue;
            EXPECT_EQ(5 * half.args.Load<int64_t>(whole.rows.at),
                      3 * whole.args.Load<int64_t>(whole.rows.at));
        }
    });
}

}  // namespace
}  // namespace weft::backend
