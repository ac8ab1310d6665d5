#include "backend/placed/stream_border.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/deadline.h"

namespace weft::backend {
namespace {

using program::OpRange;
using program::Way;

constexpr int64_t kLeastRows = 8;

// Experts of the model, of which this rank may hold some (ExpertMatMul::first_expert).
int32_t ExpertsOf(const program::PlacedProgram& placed) {
    int64_t experts = 1;
    for (const program::Program* const side : {&placed.device, &placed.host}) {
        for (const program::Op& op : side->ops) {
            if (op.kind() != program::OpKind::kRoute) continue;
            experts = std::max(experts, side->value(op.inputs[0]).shape[1]);
        }
    }
    return static_cast<int32_t>(experts);
}

// Ids of experts: all are used equally often, and a row has different ones.
void MakeUpIds(std::span<int32_t> ids, int32_t experts) {
    for (size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<int32_t>(i % static_cast<size_t>(experts));
    }
}

// Hands values to the host's ops: positive numbers, and ids of experts.
class MadeUpValues final : public StageLinks {
  public:
    explicit MadeUpValues(const program::PlacedProgram& placed)
        : host_(placed.host), experts_(ExpertsOf(placed)) {}
    Status Send(std::span<const std::byte>, int, const net::OpTag&) override { return {}; }
    Status Recv(std::span<std::byte> data, int, const net::OpTag& tag) override {
        const program::Op& op = host_.ops[static_cast<size_t>(tag.index)];
        const size_t count = data.size() / sizeof(float);
        if (host_.value(op.outputs[0]).dtype != DType::kI32) {
            std::fill_n(reinterpret_cast<float*>(data.data()), count, 0.01f);
            return {};
        }
        MakeUpIds({reinterpret_cast<int32_t*>(data.data()), count}, experts_);
        return {};
    }

  private:
    const program::Program& host_;
    const int32_t experts_;
};

// Writes ids of experts where the device's ops read them.
Status WriteIds(Executable& device, const OpRange& ops, int64_t rows, int32_t experts) {
    const program::Program& program = device.program();
    for (size_t op = ops.begin; op < ops.end; ++op) {
        for (const program::ValueId id : program.ops[op].inputs) {
            const program::Value& value = program.value(id);
            if (value.storage != program::Storage::kActivation || value.dtype != DType::kI32) {
                continue;
            }
            std::vector<int32_t> ids(static_cast<size_t>(value.shape.Elements(rows, 0)));
            MakeUpIds(ids, experts);
            WEFT_TRY(device.Write(id, 0, std::as_bytes(std::span(ids))));
        }
    }
    return {};
}

// The streamed ops of a run, and the run.
struct Streamed {
    OpRange ops;
    size_t run = 0;
};

std::vector<Streamed> StreamedOf(const program::PlacedProgram& placed) {
    std::vector<Streamed> all;
    int32_t run = 0;
    for (size_t i = 0; i < placed.ways.size(); ++i) {
        run = std::max(run, placed.run_of_device[i]);
        if (placed.ways[i] != Way::kStreamed) continue;
        if (all.empty() || all.back().ops.end != i)
            all.push_back({{i, i}, static_cast<size_t>(run)});
        all.back().ops.end = i + 1;
    }
    return all;
}

// A step of one sequence.
class MadeUpStep {
  public:
    MadeUpStep(int64_t rows, const CompileOptions& options)
        : tokens_(static_cast<size_t>(rows), 0),
          positions_(static_cast<size_t>(rows)),
          pages_(options.kv_pages == 0
                     ? 0
                     : static_cast<size_t>((rows + options.page_tokens - 1) / options.page_tokens),
                 0) {
        std::iota(positions_.begin(), positions_.end(), 0);
        sequence_.row_count = static_cast<int32_t>(rows);
        sequence_.pages = pages_;
        sequence_.state_to = options.state_slots > 0 ? 0 : -1;
        step.tokens = tokens_;
        step.positions = positions_;
        step.sequences = {&sequence_, 1};
    }
    MadeUpStep(const MadeUpStep&) = delete;
    MadeUpStep& operator=(const MadeUpStep&) = delete;
    Step step;

  private:
    std::vector<int32_t> tokens_, positions_, pages_;
    StepSequence sequence_;
};

}  // namespace

// With two layers, each run of the device reads weights that it does not have yet.
Result<StreamBorder> MeasureStreamBorder(const program::PlacedProgram& placed, Executable& device,
                                         Executable& host, const CompileOptions& options) {
    const std::vector<Streamed> streamed = StreamedOf(placed);
    MadeUpValues values(placed);
    Communicators groups;
    groups.stages = &values;
    size_t turn = 0;
    const auto time = [&](Executable& on, const Step& step) -> Result<double> {
        const Streamed& one = streamed[turn++ % std::min<size_t>(streamed.size(), 2)];
        if (&on == &device) {
            WEFT_TRY(WriteIds(device, one.ops, std::ssize(step.tokens), ExpertsOf(placed)));
        }
        const int64_t begin_ns = NowNs();
        WEFT_TRY(on.Run(&on == &device ? one.ops : placed.runs[one.run], step, groups));
        return 1e3 * SecondsSince(begin_ns);
    };
    WEFT_TRY(device.ZeroFill(program::Pool::kBrief));
    WEFT_TRY(device.ZeroFill(program::Pool::kKept));
    StreamBorder border;
    for (int64_t rows = kLeastRows; rows <= options.max_tokens; rows *= 2) {
        MadeUpStep made(rows, options);
        made.step.streams = true;
        border.tried_rows = rows;
        for (double* ms : {&border.device_ms, &border.host_ms}) {
            Executable& on = ms == &border.device_ms ? device : host;
            WEFT_TRY(time(on, made.step));  // compiles kernels, wakes threads
            WEFT_ASSIGN(*ms, time(on, made.step));
        }
        if (border.host_ms <= border.device_ms) continue;
        border.rows = rows;
        return border;
    }
    return border;
}

}  // namespace weft::backend
