#include "program/placement.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "program/communication.h"

namespace weft::program {
namespace {

// The number between `prefix` and a dot at the begin of a name: 3 in "blk.3.attn_q.weight".
std::optional<int64_t> LayerIn(std::string_view name, std::string_view prefix) {
    if (!name.starts_with(prefix)) return std::nullopt;
    int64_t layer = 0;
    const char* const end = name.data() + name.size();
    const auto [at, error] = std::from_chars(name.data() + prefix.size(), end, layer);
    if (error != std::errc() || at == end || *at != '.') return std::nullopt;
    return layer;
}

// The layer of an op: the layer of the value that it writes.
std::optional<int64_t> LayerOf(const Program& program, const Op& op) {
    return op.outputs.empty() ? std::nullopt : LayerIn(program.value(op.outputs[0]).name, "l");
}

// By op: whether it computes with experts, or on rows of a token's experts ([T, K, n]).
std::vector<bool> FindExpertOps(const Program& program) {
    std::vector<bool> found, has_rows(program.values.size(), false);
    for (const Op& op : program.ops) {
        const bool of_rows = std::ranges::any_of(
            op.inputs, [&](ValueId id) { return has_rows[static_cast<size_t>(id)]; });
        found.push_back(IsOfExperts(op) || of_rows || op.kind() == OpKind::kWeighRows);
        for (const ValueId id : op.outputs) {
            has_rows[static_cast<size_t>(id)] = found.back() && program.value(id).shape.rank == 3;
        }
    }
    return found;
}

bool Lasts(Storage storage) {
    return storage == Storage::kState || storage == Storage::kSlots;
}

// A Program, and by op: whether the host runs it, and the op of the whole Program that it is.
struct Sided {
    Program program;
    std::vector<bool> on_host;
    std::vector<size_t> origins;
};

// Whether the last op before `end` that writes the value runs on the host.
bool IsMadeOnHost(const Sided& sided, size_t end, ValueId id) {
    for (size_t i = end; i-- > 0;) {
        if (std::ranges::find(sided.program.ops[i].outputs, id) !=
            sided.program.ops[i].outputs.end()) {
            return sided.on_host[i];
        }
    }
    return false;
}

// Takes the base of each of the host's sums of experts out of the sum, if the device computes that
// base: the device adds both. So the host does not wait for the base.
Sided TakeBasesApart(const Program& program, const std::vector<bool>& on_host) {
    Sided sided;
    sided.program.values = program.values;
    const auto append = [&](Op op, bool is_of_host, size_t origin) {
        sided.program.ops.push_back(std::move(op));
        sided.on_host.push_back(is_of_host);
        sided.origins.push_back(origin);
    };
    for (size_t i = 0; i < program.ops.size(); ++i) {
        Op op = program.ops[i];
        ExpertSum* const sum = op.attributes.If<ExpertSum>();
        const bool has_base = on_host[i] && sum != nullptr && sum->base &&
                              !IsMadeOnHost(sided, sided.program.ops.size(), op.inputs.back());
        if (!has_base) {
            append(std::move(op), on_host[i], i);
            continue;
        }
        const ValueId base = op.inputs.back(), y = op.outputs[0];
        Value experts = program.value(y);
        experts.name += ".experts";
        const ValueId part = sided.program.AddValue(std::move(experts));
        sum->base = false;
        op.inputs.pop_back();
        op.outputs = {part};
        append(std::move(op), true, i);
        append({Add{}, {base, part}, {y}}, false, i);
    }
    return sided;
}

// Builds both Programs op by op.
class Placer {
  public:
    Placer(Sided sided, std::span<const ValueId> keep, bool streams)
        : streams_(streams),
          program_(std::move(sided.program)),
          on_host_(std::move(sided.on_host)),
          origins_(std::move(sided.origins)),
          keep_(keep) {
        const size_t values = program_.values.size();
        placed_.on_device.assign(values, kNoValue);
        placed_.on_host.assign(values, kNoValue);
        placed_.is_of_host.assign(values, false);
        placed_.is_streamed.assign(values, false);
        valid_.assign(values, {});
    }

    Result<PlacedProgram> Place();

  private:
    enum Side : size_t { kDevice, kHost };
    Program& Of(Side side) { return side == kHost ? placed_.host : placed_.device; }
    std::vector<ValueId>& Ids(Side side) {
        return side == kHost ? placed_.on_host : placed_.on_device;
    }
    bool IsActivation(ValueId id) const {
        return program_.value(id).storage == Storage::kActivation;
    }
    ValueId On(Side side, ValueId id);
    void Append(Side side, Op op, int64_t origin, int32_t run = -1, Way way = Way::kAlways);
    void Copy(Side side, size_t op);
    void NoteWrites(Side side, const Op& op);
    std::vector<ValueId> Missing(Side side, const OpRange& run) const;
    std::vector<ValueId> Wanted(const OpRange& run) const;
    void Hand(Side from, std::span<const ValueId> ids, int32_t run, Way way);
    size_t HandFirst(const OpRange& ops_of_run, int32_t run, Way way);
    std::vector<bool> FindNeeded(size_t begin, std::span<const ValueId> ids) const;
    bool CanStream(const OpRange& run) const;
    void Stream(const OpRange& run);
    void PlaceRun(const OpRange& run);
    Status CheckStates() const;

    const bool streams_;
    const Program program_;
    const std::vector<bool> on_host_;
    const std::vector<size_t> origins_;
    const std::span<const ValueId> keep_;
    PlacedProgram placed_;
    std::vector<std::array<bool, 2>> valid_;  // by activation: whether a side has its contents
};

// The value in a side's Program, which gets it at its first use there.
ValueId Placer::On(Side side, ValueId id) {
    ValueId& own = Ids(side)[static_cast<size_t>(id)];
    if (own != kNoValue) return own;
    Value value = program_.value(id);
    if (value.storage == Storage::kView) value.base = On(side, value.base);
    return own = Of(side).AddValue(std::move(value));
}

void Placer::Append(Side side, Op op, int64_t origin, int32_t run, Way way) {
    for (ValueId& id : op.inputs) id = On(side, id);
    for (ValueId& id : op.outputs) id = On(side, id);
    Of(side).ops.push_back(std::move(op));
    (side == kHost ? placed_.op_of_host : placed_.op_of_device)
        .push_back(static_cast<int32_t>(origin));
    if (side != kDevice) return;
    placed_.run_of_device.push_back(run);
    placed_.ways.push_back(way);
}

void Placer::NoteWrites(Side side, const Op& op) {
    for (const ValueId id : op.outputs) {
        const auto home = static_cast<size_t>(program_.HomeOf(id));
        valid_[home] = {side == kDevice, side == kHost};
        placed_.is_of_host[home] = placed_.is_of_host[static_cast<size_t>(id)] = side == kHost;
    }
}

void Placer::Copy(Side side, size_t op) {
    Append(side, program_.ops[op], static_cast<int64_t>(origins_[op]));
    NoteWrites(side, program_.ops[op]);
}

// The activations that ops of a side read and that only the other side has, in order of use.
std::vector<ValueId> Placer::Missing(Side side, const OpRange& run) const {
    std::vector<ValueId> missing;
    std::vector<bool> done(program_.values.size(), false);
    for (size_t i = run.begin; i < run.end; ++i) {
        const Op& op = program_.ops[i];
        // An op that writes a view keeps the rest of the view's base.
        std::vector<ValueId> reads = op.inputs;
        for (const ValueId id : op.outputs) {
            if (program_.value(id).storage == Storage::kView) reads.push_back(id);
        }
        for (const ValueId id : reads) {
            const ValueId home = program_.HomeOf(id);
            const auto at = static_cast<size_t>(home);
            const auto other = static_cast<size_t>(side == kHost ? kDevice : kHost);
            if (!IsActivation(home) || done[at] || valid_[at][side] || !valid_[at][other]) continue;
            missing.push_back(home);
            done[at] = true;
        }
        for (const ValueId id : op.outputs) done[static_cast<size_t>(program_.HomeOf(id))] = true;
    }
    return missing;
}

// The activations that a run of the host has written and that a later op of the device reads before
// it writes them.
std::vector<ValueId> Placer::Wanted(const OpRange& run) const {
    std::vector<ValueId> wanted;
    std::vector<bool> open(program_.values.size(), false);
    for (size_t i = run.begin; i < run.end; ++i) {
        for (const ValueId id : program_.ops[i].outputs) {
            const ValueId home = program_.HomeOf(id);
            open[static_cast<size_t>(home)] = IsActivation(home);
        }
    }
    for (size_t i = run.end; i < program_.ops.size(); ++i) {
        const Op& op = program_.ops[i];
        if (!on_host_[i]) {
            for (const auto* ids : {&op.inputs, &op.outputs}) {
                for (const ValueId id : *ids) {
                    const bool reads =
                        ids == &op.inputs || program_.value(id).storage == Storage::kView;
                    const ValueId home = program_.HomeOf(id);
                    if (!reads || !open[static_cast<size_t>(home)]) continue;
                    wanted.push_back(home);
                    open[static_cast<size_t>(home)] = false;
                }
            }
        }
        for (const ValueId id : op.outputs) open[static_cast<size_t>(program_.HomeOf(id))] = false;
    }
    return wanted;
}

// Appends the messages that hand values from one side to the other.
void Placer::Hand(Side from, std::span<const ValueId> ids, int32_t run, Way way) {
    for (const ValueId id : ids) {
        const bool to_host = from == kDevice;
        Append(kDevice, to_host ? Op{Send{kHostPeer}, {id}, {}} : Op{Recv{kHostPeer}, {}, {id}}, -1,
               run, way);
        Append(kHost, to_host ? Op{Recv{kHostPeer}, {}, {id}} : Op{Send{kHostPeer}, {id}, {}}, -1);
        valid_[static_cast<size_t>(id)] = {true, true};
    }
}

// By op of the device from `begin` on: whether it must run before these values are handed to the
// host.
std::vector<bool> Placer::FindNeeded(size_t begin, std::span<const ValueId> ids) const {
    const std::vector<Op>& ops = placed_.device.ops;
    std::vector<bool> needed(ops.size() - begin, false);
    std::vector<bool> read(placed_.device.values.size(), false), written = read;
    const auto home = [&](ValueId id) { return static_cast<size_t>(placed_.device.HomeOf(id)); };
    for (const ValueId id : ids) {
        read[static_cast<size_t>(placed_.on_device[static_cast<size_t>(id)])] = true;
    }
    for (size_t i = ops.size(); i-- > begin;) {
        const auto lasts = [&](ValueId id) {
            return Lasts(placed_.device.values[home(id)].storage);
        };
        const auto is_read = [&](ValueId id) { return read[home(id)] || written[home(id)]; };
        const auto is_written = [&](ValueId id) { return written[home(id)]; };
        const Op& op = ops[i];
        needed[i - begin] =
            std::ranges::any_of(op.inputs, lasts) || std::ranges::any_of(op.outputs, lasts) ||
            std::ranges::any_of(op.outputs, is_read) || std::ranges::any_of(op.inputs, is_written);
        if (!needed[i - begin]) continue;
        for (const ValueId id : op.inputs) read[home(id)] = true;
        for (const ValueId id : op.outputs) read[home(id)] = written[home(id)] = true;
    }
    return needed;
}

// Sends the host the values that a run reads. Ops of the layer that the run does not need, back to
// the last communication, move behind these messages. Returns where the device's order changes.
size_t Placer::HandFirst(const OpRange& ops_of_run, int32_t run, Way way) {
    const std::vector<ValueId> ids = Missing(kHost, ops_of_run);
    const auto layer = LayerOf(program_, program_.ops[ops_of_run.begin]);
    std::vector<Op>& ops = placed_.device.ops;
    size_t begin = ops.size();
    const auto stays = [&](size_t op) {
        return IsCommunication(ops[op].kind()) || placed_.ways[op] != Way::kAlways ||
               LayerOf(placed_.device, ops[op]) != layer;
    };
    while (begin > 0 && !stays(begin - 1)) --begin;
    std::vector<bool> needed = FindNeeded(begin, ids);
    Hand(kDevice, ids, run, way);
    needed.resize(ops.size() - begin, true);
    const auto first = std::ranges::find(needed, false);
    begin += static_cast<size_t>(first - needed.begin());
    needed.erase(needed.begin(), first);
    const auto order = [&](auto& list) {
        const auto from = list.begin() + static_cast<std::ptrdiff_t>(begin);
        const std::vector part(from, list.end());
        auto to = from;
        for (const bool first_ones : {true, false}) {
            for (size_t i = 0; i < part.size(); ++i) {
                if (needed[i] == first_ones) *to++ = part[i];
            }
        }
    };
    order(ops);
    order(placed_.op_of_device);
    order(placed_.run_of_device);
    order(placed_.ways);
    return begin;
}

// Whether the device can compute a run of experts: it has the operands, and no later op of the host
// reads the results.
bool Placer::CanStream(const OpRange& run) const {
    std::vector<bool> written(program_.values.size(), false);
    bool has_experts = false;
    for (size_t i = run.begin; i < run.end; ++i) {
        const Op& op = program_.ops[i];
        has_experts = has_experts || IsOfExperts(op);
        for (const auto* ids : {&op.inputs, &op.outputs}) {
            for (const ValueId id : *ids) {
                const auto home = static_cast<size_t>(program_.HomeOf(id));
                if (Lasts(program_.values[home].storage)) return false;
                const bool reads =
                    ids == &op.inputs || program_.value(id).storage == Storage::kView;
                const bool there =
                    !IsActivation(program_.HomeOf(id)) || written[home] || valid_[home][kDevice];
                if (reads && !there) return false;
            }
        }
        for (const ValueId id : op.outputs)
            written[static_cast<size_t>(program_.HomeOf(id))] = true;
    }
    for (size_t i = run.end; i < program_.ops.size(); ++i) {
        if (!on_host_[i]) continue;
        for (const ValueId id : program_.ops[i].inputs) {
            if (written[static_cast<size_t>(program_.HomeOf(id))]) return false;
        }
    }
    return has_experts;
}

void Placer::Stream(const OpRange& run) {
    for (size_t i = run.begin; i < run.end; ++i) {
        const Op& op = program_.ops[i];
        Append(kDevice, op, static_cast<int64_t>(origins_[i]), -1, Way::kStreamed);
        for (const ValueId id : op.outputs) placed_.is_streamed[static_cast<size_t>(id)] = true;
    }
}

void Placer::PlaceRun(const OpRange& run) {
    const bool streams = streams_ && CanStream(run);
    const Way way = streams ? Way::kHanded : Way::kAlways;
    const auto number = static_cast<int32_t>(placed_.runs.size());
    const size_t begin = placed_.host.ops.size();
    for (size_t i = run.begin + 1; i < run.end; ++i) placed_.device_ops[origins_[i]] = -1;
    const auto begins = static_cast<int64_t>(HandFirst(run, number, way));
    for (size_t i = 0; i <= origins_[run.begin]; ++i) {
        if (placed_.device_ops[i] > begins) placed_.device_ops[i] = -1;
    }
    for (size_t i = run.begin; i < run.end; ++i) Copy(kHost, i);
    Hand(kHost, Wanted(run), number, way);
    if (streams) Stream(run);
    placed_.runs.push_back({begin, placed_.host.ops.size()});
}

Status Placer::CheckStates() const {
    for (size_t i = 0; i < program_.values.size(); ++i) {
        if (!Lasts(program_.values[i].storage)) continue;
        if (placed_.on_device[i] == kNoValue || placed_.on_host[i] == kNoValue) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "{} is used by layers on the device and on the processor: this model's "
                         "layers share their KV cache. Use --experts, or another --gpu-layers",
                         program_.values[i].name);
    }
    return {};
}

Result<PlacedProgram> Placer::Place() {
    const size_t ops = program_.ops.size();
    placed_.device_ops.assign(origins_.empty() ? 1 : origins_.back() + 2, 0);
    for (size_t i = 0; i < ops;) {
        const bool is_first = i == 0 || origins_[i - 1] != origins_[i];
        if (is_first) {
            placed_.device_ops[origins_[i]] = static_cast<int64_t>(placed_.device.ops.size());
        }
        if (!on_host_[i]) {
            Copy(kDevice, i++);
            continue;
        }
        OpRange run{i, i};
        while (run.end < ops && on_host_[run.end]) ++run.end;
        PlaceRun(run);
        i = run.end;
    }
    placed_.device_ops.back() = static_cast<int64_t>(placed_.device.ops.size());
    // (Inputs of a step that only the caller reads or writes.)
    for (const ValueId id : keep_) {
        if (placed_.on_host[static_cast<size_t>(id)] == kNoValue) On(kDevice, id);
    }
    WEFT_TRY(CheckStates());
    if (std::ranges::find(placed_.ways, Way::kStreamed) == placed_.ways.end()) placed_.ways.clear();
    return std::move(placed_);
}

}  // namespace

bool IsToHost(const Op& op) {
    const Send* const send = op.attributes.If<Send>();
    return send != nullptr && send->peer == kHostPeer;
}

bool IsFromHost(const Op& op) {
    const Recv* const recv = op.attributes.If<Recv>();
    return recv != nullptr && recv->peer == kHostPeer;
}

bool HostOps::HasWeight(std::string_view name) const {
    const auto layer = LayerIn(name, "blk.");
    if (!layer.has_value()) return false;
    return *layer < layers || (*layer < expert_layers && name.find("_exps.") != name.npos);
}

std::vector<ValueId> StreamedWeights(const Program& program, std::span<const Way> ways) {
    std::vector<int> readers(program.values.size(), 0);
    for (const Op& op : program.ops) {
        for (const ValueId id : op.inputs) ++readers[static_cast<size_t>(id)];
    }
    std::vector<ValueId> streamed;
    for (size_t i = 0; i < ways.size(); ++i) {
        if (ways[i] != Way::kStreamed) continue;
        for (const ValueId id : program.ops[i].inputs) {
            const Value& value = program.value(id);
            const bool stack = value.shape.rank == 3 && value.shape[1] > 1;
            const bool once = readers[static_cast<size_t>(id)] == 1;
            if (value.storage == Storage::kWeight && stack && once) streamed.push_back(id);
        }
    }
    return streamed;
}

std::vector<bool> ChooseHostOps(const Program& program, const HostOps& host_ops) {
    std::vector<bool> on_host = FindExpertOps(program);
    for (size_t i = 0; i < on_host.size(); ++i) {
        const auto layer = LayerOf(program, program.ops[i]);
        const int64_t most =
            on_host[i] ? std::max(host_ops.layers, host_ops.expert_layers) : host_ops.layers;
        on_host[i] = layer.has_value() && *layer < most && !IsCommunication(program.ops[i].kind());
    }
    return on_host;
}

int64_t ExpertLayersEnd(const Program& program) {
    const std::vector<bool> of_experts = FindExpertOps(program);
    int64_t end = 0;
    for (size_t i = 0; i < of_experts.size(); ++i) {
        if (!of_experts[i]) continue;
        end = std::max(end, LayerOf(program, program.ops[i]).value_or(0) + 1);
    }
    return end;
}

Result<PlacedProgram> PlaceOps(const Program& program, const std::vector<bool>& on_host,
                               std::span<const ValueId> keep, bool streams) {
    return Placer(TakeBasesApart(program, on_host), keep, streams).Place();
}

}  // namespace weft::program
