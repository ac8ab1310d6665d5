#include "backend/placed/placed_executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/placed/hand_over.h"
#include "backend/placed/stream_border.h"
#include "base/check.h"
#include "base/log.h"
#include "program/placement.h"

namespace weft::backend {
namespace {

using program::kNoValue;
using program::OpRange;
using program::ValueId;

// The steps that stream experts.
struct StreamOptions {
    int64_t rows = 0;  // least rows; 0: none; -1: measured before the first step
    CompileOptions options;
    std::string device;
};

class PlacedExecutable final : public Executable {
  public:
    PlacedExecutable(program::Program program, program::PlacedProgram placed,
                     std::unique_ptr<Executable> device, std::unique_ptr<Executable> host,
                     const StreamOptions& streaming)
        : program_(std::move(program)),
          placed_(std::move(placed)),
          device_(std::move(device)),
          host_(std::move(host)),
          has_caches_(std::ranges::any_of(placed_.host.values,
                                          [](const program::Value& value) {
                                              return value.storage == program::Storage::kState;
                                          })),
          streaming_(streaming),
          stream_rows_(streaming.rows),
          is_read_back_(placed_.device.values.size(), false),
          hand_over_(placed_, [this](size_t run, StageLinks& messages) {
              return RunOfHost(placed_.runs[run], messages);
          }) {
        for (const ValueId id : program::StreamedWeights(placed_.device, placed_.ways)) {
            is_read_back_[static_cast<size_t>(id)] = true;
        }
    }

    const program::Program& program() const override { return program_; }
    Status LoadWeight(ValueId id, const RowSource& source) override;
    Status Run(const OpRange& ops, const Step& step, const Communicators& groups) override;
    void ForgetGroups() override { device_->ForgetGroups(); }
    Status ReadAll(std::span<const ReadPart> parts) override;
    Status WriteAll(std::span<const WritePart> parts) override;
    Status Read(ValueId id, int64_t first_byte, std::span<std::byte> out) override {
        const Place place = PlaceOf(id);
        return place.executable->Read(place.id, first_byte, out);
    }
    Status Write(ValueId id, int64_t first_byte, std::span<const std::byte> bytes) override;
    std::span<const float> HostFloats(ValueId id, int64_t first, int64_t count) const override {
        const Place place = PlaceOf(id);
        return place.executable->HostFloats(place.id, first, count);
    }
    Status ZeroFill(program::Pool pool) override {
        WEFT_TRY(host_->ZeroFill(pool));
        return device_->ZeroFill(pool);
    }
    Status ReadTopK(ValueId id, int64_t row, int64_t columns, std::span<Candidate> out) override {
        const Place place = PlaceOf(id);
        return place.executable->ReadTopK(place.id, row, columns, out);
    }
    Result<std::unique_ptr<HostSnapshot>> Snapshot(std::span<const ValueId> ids) override;
    MemoryUse memory() const override;
    DriveUse drive_use() const override { return host_->drive_use(); }
    std::vector<ExpertUse> expert_use() const override;
    void SetExpertUse(std::span<const ExpertUse> uses) override;
    void SetTracing(bool on) override {
        tracing_ = on;
        timings_.clear();
        device_->SetTracing(on);
        host_->SetTracing(on);
    }
    std::span<const OpTiming> timings() const override { return timings_; }
    TransferLog& transfers() override { return device_->transfers(); }
    void SetProbe(Probe probe) override {
        probe_ = std::move(probe);
        PassProbe(probe_);
    }
    int64_t progress() const override { return device_->progress() + host_->progress(); }

  private:
    struct Place {
        Executable* executable;
        ValueId id;
    };
    // The side with the latest contents of a value.
    Place PlaceOf(ValueId id) const {
        const auto at = static_cast<size_t>(id);
        const bool streamed = streams_ && placed_.is_streamed[at];
        const bool host =
            (placed_.is_of_host[at] && !streamed) || placed_.on_device[at] == kNoValue;
        return host ? Place{host_.get(), placed_.on_host[at]}
                    : Place{device_.get(), placed_.on_device[at]};
    }
    // Whether the device computes the step's experts.
    bool Streams(const Step& step) const {
        return stream_rows_ > 0 && std::ssize(step.tokens) >= stream_rows_;
    }
    Status MeasureBorder();
    void PassProbe(const Probe& probe);
    Status RunOfHost(const OpRange& ops, StageLinks& messages);
    void TakeTimings(const Executable& from, std::span<const int32_t> origins);

    const program::Program program_;
    const program::PlacedProgram placed_;
    const std::unique_ptr<Executable> device_, host_;
    const bool has_caches_;  // the host's ops have KV caches
    const StreamOptions streaming_;
    int64_t stream_rows_;             // StreamOptions::rows, or as measured
    std::vector<bool> is_read_back_;  // by value of the device: a streamed weight
    HandOver hand_over_;

    // State of the running step.
    Step step_;
    Communicators groups_;
    bool streams_ = false;  // Step::streams of the last step
    bool bound_ = false;    // the host's executable has the step's data
    bool tracing_ = false;
    std::vector<OpTiming> timings_;
    Probe probe_;
};

// Both sides may have the weight. The device reads a streamed weight from the host's executable.
Status PlacedExecutable::LoadWeight(ValueId id, const RowSource& source) {
    const ValueId host = placed_.on_host[static_cast<size_t>(id)];
    const ValueId device = placed_.on_device[static_cast<size_t>(id)];
    if (host != kNoValue) WEFT_TRY(host_->LoadWeight(host, source));
    if (device == kNoValue) return {};
    if (!is_read_back_[static_cast<size_t>(device)]) return device_->LoadWeight(device, source);
    return device_->LoadWeight(device,
                               [this, host](int64_t row, int64_t count, std::span<std::byte> out) {
                                   return host_->ReadRows(host, row, count, out);
                               });
}

Status PlacedExecutable::Write(ValueId id, int64_t first_byte, std::span<const std::byte> bytes) {
    const WritePart part{id, first_byte, bytes};
    return WriteAll({&part, 1});
}

Status PlacedExecutable::ReadAll(std::span<const ReadPart> parts) {
    std::vector<ReadPart> of_device;
    for (const ReadPart& part : parts) {
        const Place place = PlaceOf(part.id);
        const ReadPart own{place.id, part.first_byte, part.out};
        if (place.executable == device_.get()) {
            of_device.push_back(own);
        } else {
            WEFT_TRY(host_->Read(own.id, own.first_byte, own.out));
        }
    }
    return device_->ReadAll(of_device);
}

Status PlacedExecutable::WriteAll(std::span<const WritePart> parts) {
    std::vector<WritePart> of_device;
    for (const WritePart& part : parts) {
        const auto at = static_cast<size_t>(part.id);
        const ValueId host = placed_.on_host[at], device = placed_.on_device[at];
        if (host != kNoValue) WEFT_TRY(host_->Write(host, part.first_byte, part.bytes));
        if (device != kNoValue) of_device.push_back({device, part.first_byte, part.bytes});
    }
    return device_->WriteAll(of_device);
}

Status PlacedExecutable::Run(const OpRange& ops, const Step& step, const Communicators& groups) {
    const int64_t begin = placed_.device_ops[ops.begin], end = placed_.device_ops[ops.end];
    WEFT_CHECK(begin >= 0 && end >= 0);
    if (stream_rows_ < 0) WEFT_TRY(MeasureBorder());
    timings_.clear();
    hand_over_.Begin(groups.stages);
    step_ = step;
    step_.wanted = {};
    groups_ = groups;
    bound_ = false;
    if (has_caches_ && !step.copies.empty()) {
        WEFT_TRY(host_->Run({0, 0}, step_, groups_));
        bound_ = true;
    }
    step_.copies = {};
    Step of_device = step;
    of_device.streams = streams_ = Streams(step);
    if (step.wanted.value != kNoValue) {
        const auto at = static_cast<size_t>(step.wanted.value);
        of_device.wanted.value = placed_.is_of_host[at] ? kNoValue : placed_.on_device[at];
    }
    Communicators own = groups;
    own.parts = false;  // (All rows of a run of the host are handed at once.)
    own.stages = &hand_over_.device();
    WEFT_TRY(device_->Run({static_cast<size_t>(begin), static_cast<size_t>(end)}, of_device, own));
    if (!tracing_) return {};
    TakeTimings(*device_, placed_.op_of_device);
    std::ranges::stable_sort(timings_, {}, &OpTiming::begin_ns);
    return {};
}

// Before the first step.
Status PlacedExecutable::MeasureBorder() {
    PassProbe(nullptr);
    WEFT_ASSIGN(const StreamBorder border,
                MeasureStreamBorder(placed_, *device_, *host_, streaming_.options));
    PassProbe(probe_);
    stream_rows_ = border.rows;
    const std::string text = fmt::format(
        "for {} rows, a layer takes the processor {:.2f} ms, and "
        "the GPU, which reads the weights, {:.2f} ms",
        border.tried_rows, border.host_ms, border.device_ms);
    if (border.rows == 0) {
        Log(LogLevel::kInfo, "{}: the processor computes its experts in all steps: {}",
            streaming_.device, text);
    } else {
        Log(LogLevel::kInfo, "{}: computes the processor's experts in steps of {} rows or more: {}",
            streaming_.device, border.rows, text);
    }
    return {};
}

// Called by the device when it waits for the run's results.
Status PlacedExecutable::RunOfHost(const OpRange& ops, StageLinks& messages) {
    Communicators own = groups_;
    own.stages = &messages;
    step_.again = std::exchange(bound_, true);
    WEFT_TRY(host_->Run(ops, step_, own));
    if (tracing_) TakeTimings(*host_, placed_.op_of_host);
    return {};
}

// Messages between both sides have no op of the whole Program.
void PlacedExecutable::TakeTimings(const Executable& from, std::span<const int32_t> origins) {
    for (OpTiming timing : from.timings()) {
        timing.op = origins[static_cast<size_t>(timing.op)];
        if (timing.op >= 0) timings_.push_back(timing);
    }
}

void PlacedExecutable::PassProbe(const Probe& probe) {
    const auto of = [&](const std::vector<int32_t>& origins) -> Probe {
        if (!probe) return nullptr;
        return [&origins, probe](int32_t op, int64_t rows) -> Status {
            const int32_t origin = origins[static_cast<size_t>(op)];
            return origin < 0 ? Status() : probe(origin, rows);
        };
    };
    device_->SetProbe(of(placed_.op_of_device));
    host_->SetProbe(of(placed_.op_of_host));
}

// Snapshots of both sides, by ValueId.
class PlacedSnapshot final : public HostSnapshot {
  public:
    PlacedSnapshot(const program::PlacedProgram& placed, std::unique_ptr<HostSnapshot> device,
                   std::unique_ptr<HostSnapshot> host)
        : placed_(placed), device_(std::move(device)), host_(std::move(host)) {}
    Status Read(ValueId id, int64_t first_byte, std::span<std::byte> out) const override {
        const auto at = static_cast<size_t>(id);
        const ValueId device = placed_.on_device[at];
        return device == kNoValue ? host_->Read(placed_.on_host[at], first_byte, out)
                                  : device_->Read(device, first_byte, out);
    }

  private:
    const program::PlacedProgram& placed_;
    const std::unique_ptr<HostSnapshot> device_, host_;
};

Result<std::unique_ptr<HostSnapshot>> PlacedExecutable::Snapshot(std::span<const ValueId> ids) {
    std::vector<ValueId> of_device, of_host;
    for (const ValueId id : ids) {
        const auto at = static_cast<size_t>(id);
        const bool device = placed_.on_device[at] != kNoValue;
        device ? of_device.push_back(placed_.on_device[at])
               : of_host.push_back(placed_.on_host[at]);
    }
    WEFT_ASSIGN(auto device, device_->Snapshot(of_device));
    WEFT_ASSIGN(auto host, host_->Snapshot(of_host));
    return std::unique_ptr<HostSnapshot>(
        std::make_unique<PlacedSnapshot>(placed_, std::move(device), std::move(host)));
}

MemoryUse PlacedExecutable::memory() const {
    const MemoryUse device = device_->memory(), host = host_->memory();
    return {device.weight_bytes + host.weight_bytes, device.kv_bytes + host.kv_bytes,
            device.arena_bytes + host.arena_bytes,
            device.host_bytes + host.weight_bytes + host.kv_bytes + host.arena_bytes};
}

std::vector<ExpertUse> PlacedExecutable::expert_use() const {
    std::vector<ExpertUse> uses = host_->expert_use();
    for (ExpertUse& one : uses) {
        const auto id = std::ranges::find(placed_.on_host, one.weight);
        one.weight = static_cast<ValueId>(id - placed_.on_host.begin());
    }
    return uses;
}

void PlacedExecutable::SetExpertUse(std::span<const ExpertUse> uses) {
    std::vector<ExpertUse> of_host;
    for (const ExpertUse& one : uses) {
        const ValueId id = placed_.on_host[static_cast<size_t>(one.weight)];
        if (id != kNoValue) of_host.push_back({id, one.uses});
    }
    host_->SetExpertUse(of_host);
}

// The kept values of a side, as values of its Program.
std::vector<ValueId> KeptOn(std::span<const ValueId> ids, std::span<const ValueId> keep) {
    std::vector<ValueId> kept;
    for (const ValueId id : keep) {
        const ValueId own = ids[static_cast<size_t>(id)];
        if (own != kNoValue) kept.push_back(own);
    }
    return kept;
}

// Checks the ops of each kind of step.
Status CheckDevice(const program::PlacedProgram& placed) {
    for (const program::Way left_out : {program::Way::kStreamed, program::Way::kHanded}) {
        program::Program program{placed.device.values, {}};
        for (size_t i = 0; i < placed.device.ops.size(); ++i) {
            const bool runs = placed.ways.empty() || placed.ways[i] != left_out;
            if (runs) program.ops.push_back(placed.device.ops[i]);
        }
        WEFT_TRY(program::CheckShapes(program));
    }
    return {};
}

// Checks that the host can give the device what it streams.
Status CheckStreamed(const program::PlacedProgram& placed, const Executable& host) {
    const auto streamed = program::StreamedWeights(placed.device, placed.ways);
    for (size_t i = 0; i < placed.on_device.size(); ++i) {
        if (std::ranges::find(streamed, placed.on_device[i]) == streamed.end()) continue;
        if (placed.on_device[i] == kNoValue || host.CanReadRows(placed.on_host[i])) continue;
        const program::Value& value = placed.host.value(placed.on_host[i]);
        return MakeError(ErrorCode::kUnsupported, "{}: the processor holds {} in another form",
                         value.name, Info(value.dtype).name);
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<Executable>> CompilePlaced(program::Program program,
                                                  const std::vector<bool>& on_host, Device& device,
                                                  Device& host, const CompileOptions& options,
                                                  int64_t stream_rows) {
    WEFT_ASSIGN(program::PlacedProgram placed,
                program::PlaceOps(program, on_host, options.keep, stream_rows != 0));
    WEFT_TRY(CheckDevice(placed));
    WEFT_TRY(program::CheckShapes(placed.host));
    CompileOptions of_device = options, of_host = options;
    of_device.keep = KeptOn(placed.on_device, options.keep);
    of_device.ways = placed.ways;
    of_device.readers = &host.host_team();
    of_host.keep = KeptOn(placed.on_host, options.keep);
    of_host.overlap = Overlap::kNever;
    WEFT_ASSIGN(auto on_device, device.Compile({placed.device}, of_device));
    WEFT_ASSIGN(auto beside, host.Compile({placed.host}, of_host));
    WEFT_TRY(CheckStreamed(placed, *beside));
    if (placed.ways.empty()) stream_rows = 0;
    return std::unique_ptr<Executable>(std::make_unique<PlacedExecutable>(
        std::move(program), std::move(placed), std::move(on_device), std::move(beside),
        StreamOptions{stream_rows, of_device, device.info().name}));
}

}  // namespace weft::backend
