// MemoryLayout: in any order of passes, no other value uses a value's bytes before its last reader;
// blocks; and the places where Hazards requires a barrier.
#include "program/memory_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "program/hazards.h"
#include "support/tiny_model.h"
#include "train/graph.h"

namespace weft::program {
namespace {

constexpr int64_t kLayoutRows = 40;

struct LayoutCase {
    const char* architecture = "qwen3";
    Recompute recompute = Recompute::kNone;
    int zero = 0;
    bool balance = false, overlap = false;
    int slots = 1, chunks = 1;
    int64_t block_bytes = 0;
};

const LayoutCase kLayoutCases[] = {
    {},
    {.architecture = "qwen3moe", .balance = true},
    {.architecture = "qwen3moe",
     .recompute = Recompute::kFull,
     .zero = 3,
     .balance = true,
     .overlap = true,
     .slots = 2},
    {.architecture = "llama", .recompute = Recompute::kSelective, .zero = 2, .overlap = true},
    {.architecture = "qwen2", .zero = 3, .overlap = true, .slots = 3, .chunks = 2},
    {.architecture = "qwen2", .recompute = Recompute::kFull, .slots = 4, .chunks = 3},
    {.block_bytes = 4096},
    {.architecture = "qwen2moe",
     .zero = 3,
     .balance = true,
     .overlap = true,
     .slots = 3,
     .block_bytes = 2048},
    {.architecture = "qwen3moe",
     .recompute = Recompute::kFull,
     .balance = true,
     .slots = 2,
     .block_bytes = 1024},
};

ChunkedProgram LayoutProgram(const LayoutCase& c) {
    const bool experts = std::string_view(c.architecture).ends_with("moe");
    model::Hyper hyper = experts ? support::TinyExpertHyper(c.architecture)
                                 : support::TinyHyper(c.architecture, false);
    hyper.layers = 2 * c.chunks;
    const support::TinySource source(hyper);
    train::GraphOptions options{.recompute = c.recompute,
                                .zero = {.stage = c.zero, .ranks = 2, .unit_elements = 900}};
    options.zero.prefetch_elements = c.overlap ? 900 : 0;
    options.rows = kLayoutRows;
    options.load_balance = c.balance;
    options.target.logits_bytes = 1;
    const auto plan =
        model::PlanShards(hyper, source, model::MakeLayout(c.chunks, 1, c.chunks, {}).value());
    auto graph = train::BuildTrainingGraph(hyper, plan->shards, source, options);
    EXPECT_TRUE(graph.ok()) << graph.error().message;
    return std::move(graph->program);
}

LayoutOptions LayoutOptionsOf(const LayoutCase& c) {
    LayoutOptions options;
    options.tokens = options.outputs = kLayoutRows;
    options.slots = c.slots;
    options.overlap = c.overlap;
    options.block_bytes = c.block_bytes;
    return options;
}

int64_t LayoutBytes(const Program& program, ValueId id) {
    const Value& value = program.value(id);
    return RowBytes(value.dtype, value.shape.Elements(kLayoutRows, kLayoutRows));
}

// Runs parts of chunks in some order, and keeps track of whose the bytes of the pools are.
class OwnersRun {
  public:
    struct Owner {
        ValueId id = kNoValue;
        int slot = 0;
        bool operator==(const Owner&) const = default;
    };

    OwnersRun(const ChunkedProgram& list, const LayoutCase& c)
        : list_(list), program_(list.program), c_(c), layout_(list, LayoutOptionsOf(c)) {
        for (size_t p = 0; p < kPools; ++p) {
            owners_[p].resize(static_cast<size_t>(layout_.PoolBytes(static_cast<Pool>(p))));
        }
        for (size_t i = 0; i < program_.values.size(); ++i) {
            const Storage storage = program_.values[i].storage;
            const bool lasts = storage == Storage::kWeight || storage == Storage::kGradient ||
                               storage == Storage::kOptimizer;
            if (lasts) Write(static_cast<ValueId>(i), 0);
        }
    }

    // After some forward passes the host may request the losses, or the likely next tokens.
    void Forward(size_t index, int slot, bool evaluates, bool predicts) {
        const ModelChunk& chunk = list_.chunks[index];
        for (ValueId id = chunk.first_value; id < chunk.end_value; ++id) {
            if (program_.value(id).storage == Storage::kInput) Write(id, slot);
        }
        Run(chunk.forward(), slot);
        if (evaluates) {
            Run(chunk.evaluate(), slot);
            Read(chunk.loss.evaluated, slot);
        }
        Read(chunk.side_output, slot);
        if (predicts) {
            Run(chunk.predict(), slot);
            Read(chunk.loss.predicted, slot);
        }
    }
    void Backward(size_t index, int slot) {
        Run(list_.chunks[index].backward(), slot);
        Read(list_.chunks[index].loss.losses, slot);
    }
    int64_t wrong() const { return wrong_; }
    const std::string& first_wrong() const { return first_wrong_; }
    const MemoryLayout& layout() const { return layout_; }

  private:
    void Run(const OpRange& ops, int slot) {
        ValueId under_way = kNoValue;  // a zero_reduce_scatter reads it until the next one
        for (size_t i = ops.begin; i < ops.end; ++i) {
            const Op& op = program_.ops[i];
            for (const ValueId id : op.inputs) Read(id, slot);
            for (const ValueId id : op.outputs) Write(id, slot);
            if (!c_.overlap || op.kind() != OpKind::kZeroReduceScatter) continue;
            Read(under_way, slot);
            under_way = op.inputs[0];
        }
    }
    // Slots that share a place write the same.
    template <typename Visit>
    void Bytes(ValueId id, int slot, const Visit& visit) {
        if (id == kNoValue) return;
        const ValueId home = program_.HomeOf(id);
        const ValuePlace& place = layout_.PlaceOf(id);
        ASSERT_NE(place.pool, Pool::kNone) << program_.value(id).name;
        const bool apart = layout_.SlotStride(place.pool) > 0;
        auto& owners = owners_[static_cast<size_t>(place.pool)];
        const auto begin = static_cast<size_t>(layout_.OffsetOf(id, slot));
        const auto bytes = static_cast<size_t>(LayoutBytes(program_, id));
        ASSERT_LE(begin + bytes, owners.size()) << program_.value(id).name;
        for (size_t at = begin; at < begin + bytes; ++at) {
            visit(owners[at], Owner{home, apart ? slot : 0});
        }
    }
    void Write(ValueId id, int slot) {
        Bytes(id, slot, [](Owner& owner, const Owner& writer) { owner = writer; });
    }
    void Read(ValueId id, int slot) {
        Bytes(id, slot, [&](const Owner& owner, const Owner& reader) {
            if (owner == reader) return;
            if (wrong_++ == 0) first_wrong_ = program_.value(id).name;
        });
    }

    const ChunkedProgram& list_;
    const Program& program_;
    const LayoutCase c_;
    const MemoryLayout layout_;
    std::array<std::vector<Owner>, kPools> owners_;
    int64_t wrong_ = 0;
    std::string first_wrong_;
};

// Forward passes begin in any free slot; their backward passes follow at any time.
void RunInSomeOrder(OwnersRun& run, const LayoutCase& c, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<int> chunk_of(static_cast<size_t>(c.slots), -1);
    for (int i = 0; i < 12; ++i) {
        const auto slot = static_cast<int>(random() % static_cast<unsigned>(c.slots));
        int& chunk = chunk_of[static_cast<size_t>(slot)];
        if (chunk < 0) {
            chunk = static_cast<int>(random() % static_cast<unsigned>(c.chunks));
            const bool last = chunk + 1 == c.chunks;
            run.Forward(static_cast<size_t>(chunk), slot, last && random() % 2 == 0,
                        last && random() % 3 == 0);
        } else {
            run.Backward(static_cast<size_t>(chunk), slot);
            chunk = -1;
        }
    }
}

TEST(MemoryLayout, NoReaderFindsAnothersBytes) {
    for (const LayoutCase& c : kLayoutCases) {
        const ChunkedProgram list = LayoutProgram(c);
        for (uint32_t seed = 0; seed < 3; ++seed) {
            OwnersRun run(list, c);
            RunInSomeOrder(run, c, seed);
            EXPECT_EQ(run.wrong(), 0)
                << c.architecture << ", " << c.slots << " slots: " << run.first_wrong();
        }
    }
}

// Slots share weights, gradients and what no part leaves to another.
TEST(MemoryLayout, SlotsHaveTheirOwnInputsAndKeptValues) {
    for (const LayoutCase& c : kLayoutCases) {
        const ChunkedProgram list = LayoutProgram(c);
        const MemoryLayout layout(list, LayoutOptionsOf(c));
        for (size_t p = 0; p < kPools; ++p) {
            const auto pool = static_cast<Pool>(p);
            const bool apart = pool == Pool::kInput || pool == Pool::kKept;
            EXPECT_EQ(layout.SlotStride(pool) * c.slots, apart ? layout.PoolBytes(pool) : 0);
        }
        EXPECT_EQ(layout.PoolBytes(Pool::kBrief) > 0, c.slots > 1);
    }
}

// Views lie where their elements are.
TEST(MemoryLayout, ViewsLieInTheirBases) {
    for (const LayoutCase& c : kLayoutCases) {
        const ChunkedProgram list = LayoutProgram(c);
        const MemoryLayout layout(list, LayoutOptionsOf(c));
        for (size_t i = 0; i < list.program.values.size(); ++i) {
            const Value& view = list.program.values[i];
            if (view.storage != Storage::kView) continue;
            const auto id = static_cast<ValueId>(i);
            const ValuePlace &place = layout.PlaceOf(id), &base = layout.PlaceOf(view.base);
            EXPECT_EQ(place.pool, base.pool);
            EXPECT_EQ(place.offset - base.offset, RowBytes(view.dtype, view.base_begin));
            EXPECT_LE(place.offset + LayoutBytes(list.program, id),
                      base.offset + LayoutBytes(list.program, view.base));
        }
    }
}

// Larger values begin at a block. None of what lasts shares the last block that they reach.
TEST(MemoryLayout, NoValueLiesAcrossBlocks) {
    size_t small = 0, large = 0;
    for (const LayoutCase& c : kLayoutCases) {
        if (c.block_bytes == 0) continue;
        const ChunkedProgram list = LayoutProgram(c);
        const MemoryLayout layout(list, LayoutOptionsOf(c));
        std::map<std::pair<Pool, int64_t>, size_t> sharers;  // of blocks of what lasts
        std::vector<std::pair<Pool, int64_t>> last_blocks;
        for (size_t i = 0; i < list.program.values.size(); ++i) {
            const auto id = static_cast<ValueId>(i);
            const ValuePlace& place = layout.PlaceOf(id);
            const int64_t bytes = LayoutBytes(list.program, id);
            if (list.program.values[i].storage == Storage::kView) continue;
            if (place.pool == Pool::kNone || bytes == 0) continue;
            const int64_t begin = layout.OffsetOf(id, c.slots - 1), end = begin + bytes;
            const bool fits = bytes <= c.block_bytes;
            ++(fits ? small : large);
            EXPECT_TRUE(!fits || begin / c.block_bytes == (end - 1) / c.block_bytes);
            EXPECT_TRUE(fits || begin % c.block_bytes == 0);
            const bool lasts = place.pool != Pool::kKept && place.pool != Pool::kBrief;
            if (!lasts) continue;
            ++sharers[{place.pool, (end - 1) / c.block_bytes}];
            if (!fits) last_blocks.emplace_back(place.pool, (end - 1) / c.block_bytes);
        }
        for (const auto& block : last_blocks) EXPECT_EQ(sharers[block], 1u);
    }
    EXPECT_GT(small, 100u);
    EXPECT_GT(large, 10u);
}

// Packed weights are as large as the device says.
TEST(MemoryLayout, DeviceSetsTheSizeOfWeights) {
    const LayoutCase c{.zero = 3};
    const ChunkedProgram list = LayoutProgram(c);
    LayoutOptions options = LayoutOptionsOf(c);
    options.align = 256;
    options.weight_bytes = [](ValueId id) { return 100 + id; };
    const MemoryLayout layout(list, options);
    int64_t end = 0;
    for (size_t i = 0; i < list.program.values.size(); ++i) {
        if (list.program.values[i].storage != Storage::kWeight) continue;
        const auto id = static_cast<ValueId>(i);
        EXPECT_EQ(layout.PlaceOf(id).offset, end);
        end += (100 + id + 255) / 256 * 256;
    }
    EXPECT_GT(end, 0);
    EXPECT_EQ(layout.PoolBytes(Pool::kWeight), end);
}

// For inference, offsets are PlanArena's; `keep` lives to the end.
TEST(MemoryLayout, InferenceHasOneArena) {
    const model::Hyper hyper = support::TinyHyper("qwen3", true);
    const support::TinySource source(hyper);
    const Program program = support::Build(hyper, source, {}, {})[0];
    for (const bool halves : {false, true}) {
        LayoutOptions options;
        options.tokens = 7;
        options.outputs = 3;
        options.positions = 128;
        options.in_halves = halves;
        options.keep = {program.Find("logits")};
        const MemoryLayout layout({program}, options);
        const ArenaPlan plan = halves ? PlanArenaInHalves(program, 7, 3, options.keep)
                                      : PlanArena(program, 7, 3, options.keep);
        EXPECT_EQ(layout.PoolBytes(Pool::kBrief), plan.size_bytes);
        EXPECT_EQ(layout.PoolBytes(Pool::kKept), 0);
        for (size_t i = 0; i < program.values.size(); ++i) {
            if (plan.offsets[i] < 0) continue;
            EXPECT_EQ(layout.PlaceOf(static_cast<ValueId>(i)).offset, plan.offsets[i]);
            EXPECT_EQ(layout.PlaceOf(static_cast<ValueId>(i)).pool, Pool::kBrief);
        }
        EXPECT_EQ(layout.PoolBytes(Pool::kCache), StateBytes(program, 128));
    }
}

// ---- Hazards ------------------------------------------------------------------------------------

struct Span1 {
    int begin = 0, end = 0;
    bool Overlaps(const Span1& other) const { return begin < other.end && other.begin < end; }
};

TEST(Hazards, AskForABarrierWhereBytesMeet) {
    const std::vector<Span1> a = {{0, 4}}, b = {{3, 6}}, c = {{4, 8}}, none;
    Hazards<Span1> hazards;
    EXPECT_FALSE(hazards.Touch(none, a));
    EXPECT_FALSE(hazards.Touch(none, c));  // neighbours do not meet
    EXPECT_TRUE(hazards.Touch(b, none));   // reads what was written
    EXPECT_FALSE(hazards.Touch(b, none));  // (with others that read)
    EXPECT_FALSE(hazards.Touch(c, none));  // written before the barrier
    EXPECT_TRUE(hazards.Touch(none, a));   // writes what was read
    EXPECT_TRUE(hazards.Touch(none, b));   // writes what was written
    hazards.Clear();
    EXPECT_FALSE(hazards.Touch(a, c));
    EXPECT_TRUE(hazards.Touch(a, a));  // changes what was read
}

// Random commands: within a run without a barrier no two collide, and a barrier has its reason.
TEST(Hazards, RunsWithoutABarrierAreFreeOfCollisions) {
    for (uint32_t seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        const auto spans = [&] {
            std::vector<Span1> some(random() % 3);
            for (Span1& span : some) {
                span.begin = static_cast<int>(random() % 40);
                span.end = span.begin + 1 + static_cast<int>(random() % 6);
            }
            return some;
        };
        Hazards<Span1> hazards;
        std::vector<std::pair<std::vector<Span1>, std::vector<Span1>>> run;
        for (int i = 0; i < 40; ++i) {
            const std::vector<Span1> reads = spans(), writes = spans();
            const auto meet = [](const std::vector<Span1>& x, const std::vector<Span1>& y) {
                for (const Span1& a : x) {
                    for (const Span1& b : y) {
                        if (std::max(a.begin, b.begin) < std::min(a.end, b.end)) return true;
                    }
                }
                return false;
            };
            const bool collides = std::ranges::any_of(run, [&](const auto& other) {
                return meet(reads, other.second) || meet(writes, other.second) ||
                       meet(writes, other.first);
            });
            EXPECT_EQ(hazards.Touch(reads, writes), collides);
            if (collides) run.clear();
            run.emplace_back(reads, writes);
        }
    }
}

}  // namespace
}  // namespace weft::program
